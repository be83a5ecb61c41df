"""Alembic's `context`, which only an env.py has, and what the other env.py of the page begins with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

migrated: list[dict[str, Any]] = []
context = SimpleNamespace(is_offline_mode=lambda: False)
URL = "sqlite://"  # tests/sqlalchemy/test_alembic.py runs both with Alembic on Postgres


def migrate(**where: Any) -> None:
    """Stands for what is above it on the page."""
    migrated.append(where)


def afterwards(names: dict[str, Any]) -> None:
    """On a connection."""
    assert [list(where) for where in migrated] == [["connection"]]
