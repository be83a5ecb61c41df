"""One story while it happens: which faults are still to strike, and what has been seen so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sagas.outcome import UNKNOWN
from sagas.testing.explorer.faults import FOR_GOOD, GIVEN_UP, LASTING, LATE, SILENT, Fault, Kind
from sagas.testing.explorer.places import Part, Place

MOST_ATTEMPTS = 40  # of a step that is given up one day; one that never is has trouble for a while only
A_WHILE = 5  # attempts
AROUND = (Kind.CANCEL_BEFORE, Kind.OTHER_PROCESS, Kind.NEVER, Kind.FIRST, Kind.MEANWHILE)  # a body, not in it
SHORT = 80  # characters of a value in a line


class Death(KeyboardInterrupt):
    """The worker is dead. Nothing between the body and the driver catches it."""


@dataclass(kw_only=True, slots=True)
class Moment:
    """One line of a story.

    Attributes:
        text: in words.
        place: whose body ran or was about to; None: something else happened.
        began: the body began.
        injected: what went wrong here was the explorer's doing.
        error: what the user's own code raised.
        late: an attempt that was given up long ago.
        notes: what the user's code had to say, see `note`.
    """

    text: str
    place: Place | None = None
    began: bool = False
    injected: bool = False
    error: BaseException | None = None
    late: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Script:
    """The faults of one story and its moments."""

    faults: tuple[Fault, ...]
    cancel: Callable[[], None]
    error: Callable[[], BaseException]
    watch: bool = False  # note which calls bodies make
    moments: list[Moment] = field(default_factory=list)
    calls: Counter[Place] = field(default_factory=Counter)
    reached: dict[Place, set[bool]] = field(default_factory=dict)  # with a result, or with UNKNOWN
    inside: dict[Place, tuple[str, ...]] = field(default_factory=dict)
    struck: set[Fault] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)  # of the body that runs
    lifted: bool = False  # a person saw to it: what lasted is over
    turned_back: bool = False
    taken_over: bool = False  # by another worker, which nobody was told of yet
    thawing: bool = False  # a worker that hung goes on
    dying: bool = False  # and dies before it can tell anybody

    def say(self, text: str, **about: Any) -> Moment:
        """Add a line."""
        if self.taken_over and about.get("place") is not None:
            text, self.taken_over = f"another worker took over: {text}", False
        if self.thawing and about.get("place") is not None:
            text, about["late"] = f"the first attempt, given up before, went on: {text}", True
        notes, self.notes = self.notes, []
        moment = Moment(text=text, notes=notes, **about)
        self.moments.append(moment)
        return moment

    def come_to(self, place: Place, args: tuple[Any, ...]) -> Fault | None:
        """A body is about to run; returns the fault that strikes it."""
        self.calls[place] += 1
        self.reached.setdefault(place, set()).add(UNKNOWN in args[1:])
        for fault in self.faults:
            if not self.thawing and self._strikes(fault, place):
                self.struck.add(fault)
                return fault
        return None

    def _strikes(self, fault: Fault, place: Place) -> bool:
        if fault.kind in SILENT and place.step == fault.place.step and place.is_question:
            return not self.lifted and place.part is _question_of(fault.place) and not self._over(fault)
        if fault.place != place:
            return False
        if fault.kind in FOR_GOOD:
            return not self.lifted and not self._is_enough(place)
        if fault.kind in GIVEN_UP:
            return fault in self.struck and not self.lifted and not self._is_enough(place)
        if fault.kind in LATE or fault.kind in AROUND:
            return False
        return fault not in self.struck

    def _is_enough(self, place: Place) -> bool:
        return place.attempts > MOST_ATTEMPTS and self.calls[place] > A_WHILE

    def _over(self, fault: Fault) -> bool:
        """Given up: from then on the other side can be reached again."""
        return fault.place.part is Part.DO and self.turned_back

    def due(self, place: Place, *kinds: Kind) -> Fault | None:
        """A fault of these kinds that has not struck yet at a place whose work is about to begin."""
        for fault in self.faults:
            if fault.place == place and fault.kind in kinds and fault not in self.struck:
                return fault
        return None

    def first(self) -> str | None:
        """The step that is to come before those beside it, until it has come."""
        waiting = (each for each in self.faults if each.kind is Kind.FIRST and each not in self.struck)
        return next((each.place.step for each in waiting), None)

    def blamed(self, step: str, parts: tuple[Part, ...]) -> bool:
        """Whether it is the explorer's doing that work on a step went no further."""
        lasting = not self.lifted and any(
            fault.kind in LASTING and fault.place.step == step and fault.place.part in parts for fault in self.faults
        )
        return lasting or any(moment.injected for moment in self.about(step, parts)[-1:])

    def about(self, step: str, parts: tuple[Part, ...]) -> list[Moment]:
        """The moments of a step's functions."""
        return [
            moment for moment in self.moments
            if moment.place is not None and moment.place.step == step and moment.place.part in parts
            and not moment.late
        ]  # fmt: skip


def _question_of(place: Place) -> Part:
    return Part.RESOLVE if place.part is Part.DO else Part.UNDO_RESOLVE


def one_line(problem: BaseException) -> str:
    """What an error says, in a line."""
    text = " ".join(str(problem).split())
    return text if len(text) <= 2 * SHORT else text[: 2 * SHORT - 1] + "…"


def shown(value: object, limit: int = SHORT) -> str:
    """A value in a line."""
    try:
        text = repr(value)
    except Exception as problem:
        text = f"<a {type(value).__name__} whose repr raised {type(problem).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"
