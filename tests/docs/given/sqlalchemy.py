"""Alembic's `context`, which only an env.py has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sqlalchemy import MetaData

configured: list[dict[str, Any]] = []
context = SimpleNamespace(configure=lambda **given: configured.append(given))
connection = None
Base = SimpleNamespace(metadata=MetaData())


def afterwards(names: dict[str, Any]) -> None:
    """Our tables are left alone."""
    (given,) = configured
    assert not given["include_object"](None, "sagas_saga", "table", True, None)
