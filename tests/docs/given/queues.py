"""Django's transactions, and whether the step was run."""

from __future__ import annotations

from typing import Any

from django.db import transaction

__all__ = ["transaction"]


def afterwards(names: dict[str, Any]) -> None:
    """It was run."""
    assert names["Capture"].get(key="7").status == "completed"
