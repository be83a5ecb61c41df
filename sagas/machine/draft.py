"""A decision in the making. The rules write entries into it; what follows by itself is added at the end."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from sagas.events import Attempt, Continuation, Decision, Direction, Entry, Facts, Kind, Mark, Source, Work
from sagas.fold import evolve, track_of
from sagas.machine import look
from sagas.plan import Plan
from sagas.states import State, Status


class Draft:
    """A decision in the making: entries so far, and the state they lead to."""

    def __init__(self, plan: Plan, state: State, now: float | None = None) -> None:
        self.plan, self.before, self.state, self.now = plan, state, state, now
        self.entries: list[Entry] = []
        self.marks: list[Mark] = []
        self.delay: float | None = None
        self.wake = False
        self.next: Continuation | None = None

    def log(self, kind: Kind, step: str | None = None, *, attempt: int = 0, **facts: Any) -> None:
        entry = Entry(self.state.seq + 1, kind, step, attempt, Facts(**facts))
        self.entries.append(entry)
        self.state = evolve(self.state, entry)

    def answer(self, kind: Kind, a: Attempt, *, begun: int, unknown: bool = False, **facts: Any) -> None:
        """Log what became of a delivery; `begun` is how many begun bodies the entry accounts for."""
        track = track_of(look.step_of(self.state, a.step), a.direction)
        self.log(
            kind, a.step, attempt=track.attempts + begun, direction=a.direction, deliveries=begun,
            unknown=unknown, first_begun_at=a.first_begun_at, **facts,
        )  # fmt: skip

    def park(self, a: Attempt, reason: str, *, lost: int = 0, unknown: bool = False) -> None:
        self.answer(Kind.PARKED, a, begun=lost, unknown=unknown, reason=reason)

    def turn_back_if_asked(self, now: float) -> None:
        """After a step has succeeded: an end that was asked for meanwhile is granted, while that is possible."""
        if look.turning(self.state, now) and not look.pivot_passed(self.plan, self.state):
            self.log(Kind.COMPENSATING, reason=look.why_stopping(self.state))

    def decision(self) -> Decision:
        """All of it."""
        self._advance()
        before = look.frontier(self.plan, self.before)
        after = look.rows(self.plan, self.state, delay=self.delay, now=self.now)
        marks = [
            Mark(row.step, "closed", look.step_of(self.state, row.step).generation)
            for row in after
            if row.direction is Direction.UNDO
            and Work(row.step, row.direction) not in before
            and self.plan.by_name[row.step].external
        ]
        latest = {mark.step: mark for mark in (*self.marks, *marks)}  # "closed" says more than "started"
        going_on = self.next if self.state.status is Status.COMPLETED else None  # what turned back is not gone on from
        return Decision(self.state, tuple(self.entries), after, self.wake, tuple(latest.values()), going_on)

    def _advance(self) -> None:
        """Write the entries that follow by themselves, until the saga has work, is parked or has ended."""
        while self.state.status in look.DIRECTION:
            if not look.frontier(self.plan, self.state):
                self._end()
            elif (taken := look.queued_signal(self.plan, self.state)) is not None:
                step, seq = taken
                self.log(Kind.STEP_DONE, step, direction=Direction.DO, source=Source.SIGNAL, ref=seq)
                self.delay = None
            else:
                return

    def _end(self) -> None:
        """There is no work left in this direction."""
        settling = replace(self.state, status=Status.SETTLING)
        if self.state.status is Status.RUNNING:
            self.log(Kind.COMPLETED, continued=self.next.id if self.next else None)
        elif self.state.status is Status.COMPENSATING and look.frontier(self.plan, settling):
            self.log(Kind.SETTLING)
        else:
            self.log(Kind.CANCELLED if self.state.cancel_requested else Kind.COMPENSATED)
