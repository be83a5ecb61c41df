"""The faults there are, and which of them can happen where.

A fault is one thing that goes wrong in the world of a right program: an answer that is lost, a worker that dies, a
request that lands late, a customer who changes their mind. The saga has to bear every one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sagas.testing.explorer.places import Part, Place


class Kind(StrEnum):
    """What goes wrong. The value is how a story is called."""

    ERROR_BEFORE = "error before"
    ERROR_AFTER = "error after"
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    NO_ANSWER = "no answer"  # one of the calls that a body makes happens, and its answer is lost
    CRASH_INSIDE = "crash inside"  # the worker dies when one of the calls that a body makes has happened
    TWICE = "delivered twice"
    REFUSED = "refused"
    FAILS_BEFORE = "error before, every time"
    FAILS_AFTER = "error after, every time"
    UNKNOWN = "outcome unknown"
    UNKNOWN_NOTHING = "outcome unknown, nothing happened"
    LATE_AGAIN = "late, after a second attempt"
    LATE_UNDO = "late, as it is being undone"
    LATE_END = "late, at the very end"
    LATE_LOST = "late, before the last look"  # and nobody is told
    CANCEL_BEFORE = "cancel before"
    CANCEL_DURING = "cancel during"
    CANNOT_SAY = "cannot say, every time"
    NEVER = "never comes"  # the signal that a saga waits for
    OTHER_PROCESS = "in another process"
    FIRST = "before what runs beside it"
    MEANWHILE = "under way while the others run"


K = Kind
FOR_GOOD: Final = frozenset({K.FAILS_BEFORE, K.FAILS_AFTER, K.UNKNOWN, K.UNKNOWN_NOTHING, K.CANNOT_SAY})
LATE: Final = frozenset({K.LATE_AGAIN, K.LATE_UNDO, K.LATE_END, K.LATE_LOST})
GIVEN_UP: Final = frozenset({K.LATE_UNDO, K.LATE_END, K.LATE_LOST})  # no other attempt does anything
INSIDE: Final = frozenset({K.NO_ANSWER, K.CRASH_INSIDE})
HAPPENED: Final = frozenset(  # although no answer came
    {K.ERROR_AFTER, K.CRASH_AFTER, K.FAILS_AFTER, K.UNKNOWN, K.NO_ANSWER, K.CRASH_INSIDE, K.TWICE}
)
CANCELS: Final = frozenset({K.CANCEL_BEFORE, K.CANCEL_DURING})
SILENT: Final = frozenset({K.UNKNOWN, K.UNKNOWN_NOTHING})  # nobody can be asked either
LASTING: Final = FOR_GOOD | GIVEN_UP  # until a person sees to it

LOCAL = (K.ERROR_BEFORE, K.ERROR_AFTER, K.CRASH_BEFORE, K.CRASH_AFTER)
ONCE = (*LOCAL, K.TWICE)
DO = (K.REFUSED, K.CANCEL_BEFORE, K.CANCEL_DURING)
LATER = (K.LATE_AGAIN, K.LATE_END)
UNDONE_LATER = (K.LATE_UNDO, K.LATE_LOST)
AT_ONCE = (K.REFUSED, K.ERROR_AFTER, K.CRASH_AFTER, K.FAILS_AFTER, K.UNKNOWN, K.CANCEL_DURING)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault at one place.

    Attributes:
        kind: what goes wrong.
        place: where.
        call: which of the calls that the body makes, from 1; 0: none.
        called: what is called there.
    """

    kind: Kind
    place: Place
    call: int = 0
    called: str = ""

    def __str__(self) -> str:
        inside = (
            "" if not self.call else f" from {self.called}" if self.kind is K.NO_ANSWER else f" after {self.called}"
        )
        again = f" (call {self.call})" if self.call > 1 else ""
        return f"{self.place.label}: {self.kind}{inside}{again}"


def title(faults: tuple[Fault, ...]) -> str:
    """What a story with these faults is called."""
    return " + ".join(map(str, faults)) or "no fault"


def faults_at(place: Place, calls: tuple[str, ...], *, has_memory: bool) -> Iterator[Fault]:
    """Every fault that can happen at a place.

    Args:
        place: where.
        calls: what its body was seen to call.
        has_memory: whether the saga's bodies keep anything in the memory of their process.
    """
    for kind in _kinds(place):
        yield Fault(kind=kind, place=place)
    if place.beside:
        yield Fault(kind=K.MEANWHILE, place=place)
    if place.beside and not place.comes_first:
        yield Fault(kind=K.FIRST, place=place)
    if has_memory and not place.is_question and not place.waits:
        yield Fault(kind=K.OTHER_PROCESS, place=place)
    for number, called in enumerate(calls, 1):
        for kind in (K.NO_ANSWER, K.CRASH_INSIDE):
            yield Fault(kind=kind, place=place, call=number, called=called)


def together(one: Place, other: Place) -> Iterator[tuple[Fault, Fault]]:
    """Faults of two steps that run side by side, one of each: the second strikes while the first is under way, or is
    not over yet."""
    here, there = ([kind for kind in AT_ONCE if kind in _kinds(place)] for place in (one, other))
    pairs = [(K.MEANWHILE, kind) for kind in there]
    pairs += [(kind, K.MEANWHILE) for kind in here]
    pairs += [(a, b) for a in here for b in there if not (a in CANCELS and b in CANCELS)]
    for first, second in pairs:
        yield Fault(kind=first, place=one), Fault(kind=second, place=other)


def _kinds(place: Place) -> tuple[Kind, ...]:
    match place.part:
        case Part.DO if place.waits:
            return (K.CANCEL_BEFORE, K.NEVER)
        case Part.DO if not place.external:  # what it wrote is rolled back: its outcome is never unknown
            return (*LOCAL, *DO, K.FAILS_BEFORE, K.FAILS_AFTER)
        case Part.DO:
            silent = (K.UNKNOWN, K.UNKNOWN_NOTHING) if place.asks else ()
            undone = UNDONE_LATER if place.is_undone else ()
            return (*ONCE, *DO, K.FAILS_BEFORE, K.FAILS_AFTER, *silent, *LATER, *undone)
        case Part.UNDO if not place.external:
            return (*LOCAL, K.FAILS_BEFORE, K.FAILS_AFTER)
        case Part.UNDO:
            silent = (K.UNKNOWN, K.UNKNOWN_NOTHING) if place.asks else ()
            return (*ONCE, K.FAILS_BEFORE, K.FAILS_AFTER, *silent, K.LATE_AGAIN)
        case Part.SETTLE:
            return (*ONCE, K.FAILS_BEFORE, K.FAILS_AFTER)
        case _:
            return (K.ERROR_BEFORE, K.CRASH_AFTER, K.CANNOT_SAY)
