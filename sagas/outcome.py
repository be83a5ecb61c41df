"""Words for outcomes that are not results.

Single-member enums rather than bare objects, so that type checkers narrow on `is`:
after `if charge_id is UNKNOWN: ...; return` the type `str | Unknown` has become `str`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Unknown(Enum):
    """The type of `UNKNOWN`: nobody can tell whether the step happened."""

    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return self.name


class NotDone(Enum):
    """The type of `NOT_DONE`: the answer of a `resolve` that found no trace of the effect."""

    NOT_DONE = "not done"

    def __repr__(self) -> str:
        return self.name


UNKNOWN: Final = Unknown.UNKNOWN
NOT_DONE: Final = NotDone.NOT_DONE
