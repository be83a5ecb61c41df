"""Words for outcomes that are not results.

Single-member enums rather than bare objects, so that type checkers narrow on `is`:
after `if charge_id is UNKNOWN: ...; return` the type `str | Unknown` has become `str`.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Skip:
    """What a step's `when` may return in place of False: the step is skipped, and the log says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class ContinueAs:
    """What the last step may return: this saga is completed, and another of its kind begins with this input.

    The new one has the same key and subject, and the next run number; signals that nobody waited for go over to it.
    So a saga that goes on for years (a subscription, a poll) keeps a short log. Ids of such runs begin with the time at
    which the first one began: lists that go by them show the runs together, the last one first.
    """

    input: object


UNKNOWN: Final = Unknown.UNKNOWN
NOT_DONE: Final = NotDone.NOT_DONE
