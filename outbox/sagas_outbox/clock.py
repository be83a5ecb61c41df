"""The time that statements go by: the database clock, unless a test has moved it.

Every statement that compares or sets a due time takes `now`, and null stands for the clock of the database. So
this answers None in production, and nothing is read or compared.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

Source = Callable[[], datetime | None]

_source: Source | None = None


def now() -> datetime | None:
    """What to pass as `now`; None: let the database clock decide."""
    return None if _source is None else _source()


def go_by(source: Source | None) -> None:
    """Go by another clock in this process; for tests only.

    Args:
        source: tells the time, in any time zone; None: the database clock again.
    """
    global _source
    _source = source
