"""The real machine behind small hashable values, with a memory: the same question is worked out once.

States are numbered. Events and actions are tuples that begin with a word:

    ("run", argument, generation)   ("ask",)   ("misplaced",)
    ("succeeded", source, result)   ("failed",) ("refused",) ("undecided",) ("not_done",) ("lost", crashed)
    ("withdrawn",)  ("cancel", "")  ("retry", "")  ("late_answer", step)

The argument of a compensation is a result, or UNKNOWN, or RESULT: the stored one. Results are small numbers:
which of the effects at the provider it stands for.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from sagas import fold, machine, takeover
from sagas.events import (
    Attempt,
    Cancel,
    Decision,
    Direction,
    ErrorText,
    Event,
    Failed,
    Kind,
    LateAnswer,
    Lost,
    NotDone,
    Refused,
    RetryNow,
    Source,
    Start,
    Succeeded,
    Undecided,
    Withdrawn,
    Work,
)
from sagas.plan import Plan
from sagas.states import State, Status
from tests.modelcheck.provider import NOTHING, UNKNOWN
from tests.modelcheck.value import Value
from tests.modelcheck.world import Call, Delivery, Memory

RESULT: Final = -4  # the argument of an undo: the stored result
ERROR: Final = ErrorText("Error", "trouble")
OPEN: Final = (Status.RUNNING, Status.COMPENSATING, Status.SETTLING)


class Outcome(Value, frozen=True):
    """A decision, as much of it as the modelled statements write."""

    state: int
    before: int  # seq of the state it was made from
    seq: int  # seq it leads to
    entries: tuple[tuple[int, str, str], ...]  # (seq, kind, step)
    counted: int  # begun bodies that its entries account for
    work: tuple[str, str] | None  # the saga's row from now on: step and direction
    at_once: bool  # and it is due at once
    result: tuple[str, int] | None  # step and result that it logs
    closes: tuple[str, ...]  # steps that may not begin any more
    wake: bool
    folds: bool  # folding its entries into the state before gives the state after


class Brain:
    """One saga definition and everything it was asked so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.states: list[State] = []
        self._ids: dict[bytes, int] = {}
        self._assessed: dict[Any, Call] = {}
        self._decided: dict[Any, Outcome] = {}
        self._works: dict[int, tuple[tuple[str, str], ...]] = {}
        self.external = {step.name: step.external for step in plan.steps}
        self.undo_external = {step.name: step.undo is not None and step.undo.external for step in plan.steps}
        started = machine.decide(plan, None, Start(Raw(b"{}")))
        self.start = self._number(started.state)

    def _number(self, state: State) -> int:
        encoded = msgspec.json.encode(state, order="deterministic")
        if encoded not in self._ids:
            self._ids[encoded] = len(self.states)
            self.states.append(state)
        return self._ids[encoded]

    def status(self, state: int) -> Status:
        return self.states[state].status

    def works(self, state: int) -> tuple[tuple[str, str], ...]:
        """The rows that a state calls for, as step and direction."""
        if state not in self._works:
            rows = machine.rows(self.plan, self.states[state])
            self._works[state] = tuple((row.step, row.direction.value) for row in rows)
        return self._works[state]

    def runs_locally(self, step: str, direction: str) -> bool:
        """Whether this work is done inside one database transaction."""
        return not (self.external if direction == "do" else self.undo_external)[step]

    def queue(self, step: str, direction: str) -> str:
        """The queue of this work."""
        planned = self.plan.by_name[step]
        return planned.queue if direction == "do" or planned.undo is None else planned.undo.queue

    def has_one_attempt(self, step: str, direction: str) -> bool:
        """Whether this work always begins by a statement of its own."""
        return takeover.has_one_attempt(self.plan, Work(step, Direction(direction)))

    def unlogged(self, state: int, outcome: Outcome) -> Outcome:
        """A decision whose flag is written without a log entry (only a mutation does that)."""
        flag = self.states[outcome.state].cancel_requested
        after = replace(self.states[state], cancel_requested=flag)
        return outcome.but(state=self._number(after), seq=after.seq, entries=(), folds=after == self.states[state])

    # --- assess ---

    def assess(
        self, state: int, d: Delivery, memory: Memory | None = None, found: int = UNKNOWN, not_done: bool = False
    ) -> Call:
        """What to do with a delivery. `found` is a result that `resolve` brought while settling."""
        response = None
        if memory is not None:
            response = (0 if memory.undone else None) if d.direction == "undo" else memory.response
        if found != UNKNOWN:
            response = found
        closed = memory is not None and memory.closed and d.direction != "undo"
        asked = (state, d.step, d.direction, d.deliveries, closed, response, not_done)
        if asked not in self._assessed:
            recalled = takeover.Memory(closed, None if response is None else raw(response))
            action = takeover.assess(self.plan, self.states[state], attempt(d), memory=recalled, not_done=not_done)
            self._assessed[asked] = _call(action)
        return self._assessed[asked]

    # --- decide ---

    def decide(self, state: int, d: Delivery, call: Call) -> Outcome:
        """What the machine makes of an event."""
        asked = (state, d.step, d.direction, d.deliveries, call)
        if asked not in self._decided:
            before = self.states[state]
            if call[0] == "misplaced":
                decision = machine.place(self.plan, before)
            else:
                decision = machine.decide(self.plan, before, _event(attempt(d), call))
            self._decided[asked] = self._outcome(before, decision)
        return self._decided[asked]

    def _outcome(self, before: State, decision: Decision) -> Outcome:
        entries, folded = decision.entries, before
        for entry in entries:
            folded = fold.evolve(folded, entry)
        row = decision.rows[0] if decision.rows else None
        done = [each for each in entries if each.kind is Kind.STEP_DONE]
        return Outcome(
            state=self._number(decision.state),
            before=before.seq,
            seq=decision.state.seq,
            entries=tuple((entry.seq, entry.kind.value, entry.step or "") for entry in entries),
            counted=sum(entry.data.deliveries for entry in entries),
            work=None if row is None else (row.step, row.direction.value),
            at_once=row is not None and row.delay == 0,
            result=(done[0].step or "", int(bytes(done[0].data.result))) if done else None,  # type: ignore[arg-type]
            closes=tuple(mark.step for mark in decision.marks if mark.state == "closed"),
            wake=decision.wake,
            folds=folded == decision.state,
        )


def raw(result: int) -> Raw:
    return Raw(str(result).encode())


def attempt(d: Delivery) -> Attempt:
    """The delivery as the machine sees it; with the longest delays that the jitter can give."""
    if d.kind != "step":
        return _NONE
    return Attempt(step=d.step, direction=Direction(d.direction), deliveries=d.deliveries)


_NONE: Final = Attempt(step="", direction=Direction.DO)


def _call(action: takeover.Action) -> Call:
    if isinstance(action, takeover.Run):
        given = action.argument
        if isinstance(given, Raw):
            return ("run", int(bytes(given)), action.generation)
        named = {takeover.Argument.UNKNOWN: UNKNOWN, takeover.Argument.RESULT: RESULT, None: NOTHING}
        return ("run", named[given], action.generation)
    if isinstance(action, Succeeded):
        return ("succeeded", action.source.value, int(bytes(action.result)))
    if isinstance(action, Lost):
        return ("lost", action.crashed)
    words: dict[type, str] = {
        takeover.Ask: "ask", takeover.Misplaced: "misplaced", NotDone: "not_done", Withdrawn: "withdrawn"
    }  # fmt: skip
    return (words[type(action)],)


def _event(a: Attempt, call: Call) -> Event:
    word = call[0]
    if word == "succeeded":
        return Succeeded(a, raw(int(call[2])), Source(str(call[1])))
    if word == "lost":
        return Lost(a, crashed=bool(call[1]))
    if word in ("not_done", "withdrawn"):
        return NotDone(a) if word == "not_done" else Withdrawn(a)
    if word in ("cancel", "retry"):
        return Cancel() if word == "cancel" else RetryNow()
    if word == "late_answer":
        return LateAnswer(str(call[1]))
    kinds = {"failed": Failed, "refused": Refused, "undecided": Undecided}
    event: Event = kinds[str(word)](a, ERROR)
    return event
