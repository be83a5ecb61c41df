"""A decision in the making. The rules write entries into it; what follows by itself is added at the end."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from sagas.events import (
    Attempt,
    Call,
    Continuation,
    Decision,
    Direction,
    Entry,
    Facts,
    Failed,
    Kind,
    Mark,
    Row,
    Source,
    Work,
)
from sagas.fold import evolve, track_of
from sagas.machine import look
from sagas.plan import Plan
from sagas.states import State, Status


class Draft:
    """A decision in the making: entries so far, and the state they lead to."""

    def __init__(self, plan: Plan, state: State, work: tuple[Work, ...], now: float | None = None) -> None:
        self.plan, self.before, self.state, self.now = plan, work, state, now
        self.was_parked = state.status is Status.PARKED
        self.entries: list[Entry] = []
        self.marks: list[Mark] = []
        self.delay: float | None = None
        self.wake = False
        self.next: Continuation | None = None
        self.calls: list[Call] = []

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

    def again(self, delay: float) -> None:
        """What was logged last is not the end of it: in so many seconds it is tried again, or asked about."""
        entry = self.entries[-1]
        self.entries[-1] = replace(entry, data=replace(entry.data, retry_in=delay or None))
        self.delay = delay

    def park(
        self, a: Attempt, reason: str, *, lost: int = 0, unknown: bool = False, source: Source | None = None
    ) -> None:
        """Stop, until a person has decided.

        Args:
            a: the delivery.
            reason: why, for that person.
            lost: begun bodies that this accounts for.
            unknown: one of them has an outcome that nobody knows.
            source: CHILDREN: the step has none under way any more. They came to nothing, where one is lost: who goes on
                starts them anew; else they have completed.
        """
        beside = self._beside(a.step) if look.running(self.state) else ()
        self.answer(Kind.PARKED, a, begun=lost, unknown=unknown, reason=reason, open=beside, source=source)

    def park_misfit(self, e: Failed) -> None:
        """What is stored cannot be read: the code or the row is wrong, the step has neither been tried nor failed."""
        a, planned = e.attempt, self.plan.by_name[e.attempt.step]
        if not a.lost:  # its key was not used
            a = replace(a, first_begun_at=track_of(look.step_of(self.state, a.step), a.direction).first_begun_at)
        external = planned.external if a.direction is Direction.DO else look.undo_of(planned).external
        self.park(a, e.error.message, lost=a.lost, unknown=external and a.lost > 0)

    def turn_back(self, step: str, reason: str, *, failed: bool = True) -> None:
        """Begin to undo; where other steps run beside this one, as soon as they have come to their end, and where some
        are in doubt, as soon as it is known what they did.

        Args:
            step: the step that is decided about.
            reason: why.
            failed: whether it is the step that is to blame.
        """
        beside, blamed = self._beside(step), step if failed else None
        ask = look.to_ask(self.plan, self.state)
        if not look.running(self.state) or beside or ask:
            if not self.state.failing:
                self.log(Kind.TURNING, blamed, reason=reason, open=beside or ask)
                self.wake = self.wake or bool(beside)  # those that wait are to learn of it
        else:
            self.log(Kind.COMPENSATING, blamed, reason=reason)

    def _beside(self, step: str) -> tuple[str, ...]:
        """Steps that have a row of their own beside that of `step`, which is decided about."""
        return tuple(work.step for work in self.before if work.step != step)

    def turn_back_if_asked(self, a: Attempt) -> None:
        """After a step has succeeded: an end that was asked for meanwhile is granted, while that is possible."""
        if look.turning(self.state, a.now) and not look.pivot_passed(self.plan, self.state):
            self.turn_back(a.step, look.why_stopping(self.state), failed=False)

    def decision(self, acted: Work | None) -> Decision:
        """All of it.

        Args:
            acted: the work an answer was about, whose row is at hand; None: a request.
        """
        before, after = self.before, self._advance()
        new = [work for work in after if work not in before]
        kept = [work for work in after if work == acted]
        marks = self.marks + [
            Mark(work.step, "closed", look.step_of(self.state, work.step).generation)
            for work in new
            if work.direction is Direction.UNDO and self.plan.by_name[work.step].external
        ]
        latest = {mark.step: mark for mark in marks}  # "closed" says more than "started"
        # what ran beside a step that parked may sleep until somebody goes on: it began no more children meanwhile
        wake = self.wake or (self.was_parked and self.state.status is Status.RUNNING and len(after) > 1)
        going_on = self.next if self.state.status is Status.COMPLETED else None  # what turned back is not gone on from
        return Decision(
            state=self.state, entries=tuple(self.entries), wake=wake,
            rows=tuple([self._row(work, acted) for work in kept + new]),
            surplus=tuple([work for work in before if work not in after and work != acted]),
            marks=tuple(latest.values()), next=going_on, calls=tuple(self.calls),
        )  # fmt: skip

    def _row(self, work: Work, acted: Work | None) -> Row:
        return look.row(self.plan, self.state, work, self.delay if acted in (work, None) else None, self.now)

    def _advance(self) -> tuple[Work, ...]:
        """Write the entries that follow by themselves, until the saga has work, is parked or has ended; its work."""
        while True:
            work = look.frontier(self.plan, self.state)
            if self.state.status not in look.DIRECTION:
                return work
            if not work:
                self._end()
            elif (taken := look.queued_signal(self.plan, self.state)) is not None:
                step, seq = taken
                self.log(Kind.STEP_DONE, step, direction=Direction.DO, source=Source.SIGNAL, ref=seq)
                self.delay = None
            else:
                return work

    def _end(self) -> None:
        """There is no work left in this direction."""
        if self.state.failing and (ask := look.to_ask(self.plan, self.state)):
            self.log(Kind.TURNING, reason=self.state.error, open=ask)
        elif self.state.failing:
            self.log(Kind.COMPENSATING, reason=self.state.error)
        elif self.state.status is Status.RUNNING:
            self.log(Kind.COMPLETED, continued=self.next.id if self.next else None)
        elif self.state.status is Status.COMPENSATING and look.frontier(
            self.plan, replace(self.state, status=Status.SETTLING)
        ):
            self.log(Kind.SETTLING)
        else:
            self.log(Kind.CANCELLED if self.state.cancel_requested else Kind.COMPENSATED)
