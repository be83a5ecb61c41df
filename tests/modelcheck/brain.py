"""The real machine behind small hashable values, with a memory: the same question is worked out once.

States are numbered. Events and actions are tuples that begin with a word:

    ("run", argument, generation)   ("ask",)   ("misplaced",)
    ("succeeded", source, result)   ("unstorable",) ("failed",) ("refused", partly) ("undecided",)
    ("not_done",)   ("lost", crashed)   ("withdrawn",)
    ("wait",)   ("waits", until)   ("timed_out",)   ("choose",)   ("chosen",)   ("skipped",)   ("unbegun",)
    ("blocked", patience)
    ("cancel", "")  ("retry", "")  ("abort", "")  ("late_answer", step)  ("signal", step, number)
    ("pause", "")   ("resume", "")  ("redo", step)
    ("mark_done", step, result, seen)  ("mark_not_done", step, 0, seen)  ("skip", ...)  ("mark_undone", ...)

The argument of a compensation is a result, or UNKNOWN, or RESULT: the stored one. Results are small numbers:
which of the effects at the provider it stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from sagas import fold, machine, takeover
from sagas.events import (
    Abort,
    Attempt,
    Begot,
    Blocked,
    Cancel,
    Children,
    Chosen,
    Continuation,
    Decision,
    Direction,
    ErrorText,
    Event,
    Failed,
    Kind,
    LateAnswer,
    Looks,
    Lost,
    MarkDone,
    MarkNotDone,
    MarkUndone,
    NotDone,
    Pause,
    Rebuild,
    Recalled,
    Redo,
    Refused,
    Resume,
    RetryNow,
    Signal,
    Skipped,
    SkipStep,
    Source,
    Start,
    Succeeded,
    TimedOut,
    Undecided,
    UndoCompleted,
    Unstorable,
    Waits,
    Withdrawn,
    Work,
)
from sagas.machine import look
from sagas.plan import Plan
from sagas.states import State, Status, StepStatus
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
    beside: tuple[tuple[str, str], ...]  # further rows that it gets
    surplus: tuple[tuple[str, str], ...]  # work whose rows go, unless somebody holds them
    spare: bool  # the row goes where another stands for the same work
    result: tuple[str, int] | None  # step and result that it logs
    closes: tuple[str, ...]  # steps that may not begin any more, each with the generation of its key
    wake: bool
    first: float | None  # when the work of that row was first begun
    heard: int | None  # seq of the entry that holds a signal
    noted: bool  # a signal came too late
    took: tuple[int, ...]  # seqs of signals that ended a wait
    skipped: tuple[str, ...]
    redone: tuple[str, ...]  # steps that begin anew
    next: bool  # another run goes on from here
    asleep: bool  # the saga's row is not due until somebody wakes it
    calls: tuple[tuple[str, str], ...]  # about children: what, and of which step
    folds: bool  # folding its entries into the state before gives the state after


class Brain:
    """One saga definition and everything it was asked so far."""

    def __init__(self, plan: Plan, deadline: float | None = None) -> None:
        self.plan = plan
        self.states: list[State] = []
        self._ids: dict[bytes, int] = {}
        self._assessed: dict[Any, Call] = {}
        self._decided: dict[Any, Outcome] = {}
        self._works: dict[int, tuple[tuple[str, str], ...]] = {}
        self.external = {step.name: step.external for step in plan.steps}
        self.undo_external = {
            step.name: step.undo is not None and (step.undo.external or step.undo.children) for step in plan.steps
        }  # fmt: skip
        started = machine.decide(plan, None, Start(Raw(b"{}")))
        self.start = self._number(replace(started.state, deadline=deadline))

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

    def first_begun(self, state: int, step: str, direction: str) -> float | None:
        """When this work was first begun, as far as the saga knows."""
        return fold.track_of(machine.step_of(self.states[state], step), Direction(direction)).first_begun_at

    def rebuilt(self, state: int) -> Outcome:
        """What `rebuild` makes of a saga whose rows were lost."""
        before = self.states[state]
        decision = machine.decide(self.plan, before, Rebuild())
        row, *others = machine.rows(self.plan, decision.state)
        outcome = self._outcome(before, decision)
        beside = tuple((each.step, each.direction.value) for each in others)
        return outcome.but(work=(row.step, row.direction.value), first=row.first_begun_at, beside=beside)

    def runs_locally(self, step: str, direction: str) -> bool:
        """Whether this work is done inside one database transaction."""
        if direction == "do" and not self.plan.by_name[step].has_body:
            return False  # it needs no transaction of its own
        return not (self.external if direction == "do" else self.undo_external)[step]

    def generation(self, state: int, step: str) -> int:
        """Which generation of its key a step is at."""
        return machine.step_of(self.states[state], step).generation if step else 0

    def waiting(self, state: int, step: str) -> bool:
        """Whether the saga has come to this wait."""
        return machine.step_of(self.states[state], step).status is StepStatus.WAITING

    def begotten(self, state: int, step: str) -> tuple[int, int]:
        """The attempts of a step that starts children, and how many it has started in the present one."""
        known = machine.step_of(self.states[state], step)
        return known.do.attempts, known.started

    def turns_back(self, state: int, step: str) -> bool:
        """Whether an end was asked for while this step can still be turned back from."""
        return look.stopping(self.plan, self.states[state], step, None)

    def until(self, state: int, step: str) -> float | None:
        """When this wait ends."""
        return machine.step_of(self.states[state], step).until

    def skipped(self, state: int, step: str) -> bool:
        """Whether a step was left out."""
        return machine.step_of(self.states[state], step).status is StepStatus.SKIPPED

    def signals(self, state: int) -> frozenset[int]:
        """Signals that have arrived and were not taken yet, or were: the seqs of their entries."""
        steps = self.states[state].steps.values()
        return frozenset(seq for step in steps for seq in (*step.signals, step.result) if seq is not None)

    def queue(self, step: str, direction: str) -> str:
        """The queue of this work."""
        planned = self.plan.by_name[step]
        return planned.queue if direction == "do" or planned.undo is None else planned.undo.queue

    def has_one_attempt(self, step: str, direction: str) -> bool:
        """Whether this work always begins by a statement of its own."""
        return takeover.has_one_attempt(self.plan, Work(step, Direction(direction)))

    def unlogged(self, state: int, outcome: Outcome) -> Outcome:
        """A decision whose flag is written without a log entry (only a mutation does that)."""
        before, made = self.states[state], self.states[outcome.state]
        after = replace(before, cancel_requested=made.cancel_requested)
        folds = after == before
        if outcome.heard is not None:  # and what the check is after is that it is overwritten
            after, folds, outcome = replace(made, seq=before.seq), True, outcome.but(took=())
        return outcome.but(state=self._number(after), seq=after.seq, entries=(), folds=folds)

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
        asked = (state, d.step, d.direction, d.deliveries, d.first, d.now, closed, response, not_done)
        if asked not in self._assessed:
            recalled = takeover.Memory(closed, None if response is None else raw(response))
            action = takeover.assess(self.plan, self.states[state], attempt(d), memory=recalled, not_done=not_done)
            self._assessed[asked] = _call(action)
        return self._assessed[asked]

    # --- decide ---

    def decide(self, state: int, d: Delivery, call: Call) -> Outcome:
        """What the machine makes of an event."""
        asked = (state, d.step, d.direction, d.deliveries, d.first, d.now, call)
        if asked not in self._decided:
            before = self.states[state]
            if call[0] == "misplaced":
                decision = machine.place(self.plan, before, d.now, Work(d.step, Direction(d.direction)))
            else:
                decision = machine.decide(self.plan, before, _event(attempt(d), call))
            self._decided[asked] = self._outcome(before, decision)
        return self._decided[asked]

    def _outcome(self, before: State, decision: Decision) -> Outcome:
        entries, folded = decision.entries, before
        for entry in entries:
            folded = fold.evolve(folded, entry)
        row = decision.rows[0] if decision.rows else None
        done = [each for each in entries if each.kind is Kind.STEP_DONE and each.data.ref is None]
        signals = [each for each in entries if each.kind is Kind.SIGNALLED]
        return Outcome(
            state=self._number(decision.state),
            before=before.seq,
            seq=decision.state.seq,
            entries=tuple((entry.seq, entry.kind.value, entry.step or "") for entry in entries),
            counted=sum(entry.data.deliveries for entry in entries),
            work=None if row is None else (row.step, row.direction.value),
            at_once=row is not None and row.delay == 0,
            beside=tuple((each.step, each.direction.value) for each in decision.rows[1:]),
            surplus=tuple((each.step, each.direction.value) for each in decision.surplus),
            spare=decision.spare,
            result=(done[0].step or "", number_of(done[0].data.result)) if done else None,
            closes=tuple(named(mark.step, mark.generation) for mark in decision.marks if mark.state == "closed"),
            wake=decision.wake,
            first=None if row is None else row.first_begun_at,
            heard=next((each.seq for each in signals if not each.data.ignored), None),
            noted=any(each.data.ignored for each in signals),
            took=tuple(e.data.ref for e in entries if e.kind is Kind.STEP_DONE and e.data.ref is not None),
            skipped=tuple(each.step or "" for each in entries if each.kind is Kind.STEP_SKIPPED),
            redone=tuple(e.step or "" for e in entries if e.kind is Kind.REDONE and not e.data.ignored),
            next=decision.next is not None,
            asleep=row is not None and row.delay >= look.FOREVER,
            calls=tuple((each.do, each.step) for each in decision.calls),
            folds=folded == decision.state,
        )


def raw(result: int) -> Raw:
    return Raw(str(result).encode())


def number_of(result: Raw | msgspec.UnsetType) -> int:
    """The other way round; of what has no result, nothing."""
    assert isinstance(result, Raw)
    return 0 if bytes(result) == b"null" else int(bytes(result))


def named(step: str, generation: int) -> str:
    """A step under one generation of its key."""
    return f"{step}#{generation}" if generation else step


def attempt(d: Delivery) -> Attempt:
    """The delivery as the machine sees it; with the longest delays that the jitter can give."""
    if d.kind != "step":
        return _NONE
    return Attempt(
        step=d.step, direction=Direction(d.direction), deliveries=d.deliveries, first_begun_at=d.first, now=d.now
    )  # fmt: skip


_NONE: Final = Attempt(step="", direction=Direction.DO)


def _call(action: takeover.Action) -> Call:
    if isinstance(action, takeover.Run):
        given = action.argument
        if isinstance(given, Raw):
            return ("run", int(bytes(given)), action.generation)
        named = {takeover.Argument.UNKNOWN: UNKNOWN, takeover.Argument.RESULT: RESULT, None: NOTHING}
        return ("run", named[given], action.generation)
    if isinstance(action, Succeeded):
        return ("succeeded", action.source.value, number_of(action.result))
    if isinstance(action, Lost):
        return ("lost", action.crashed)
    words: dict[type, str] = {
        takeover.Ask: "ask", takeover.Misplaced: "misplaced", NotDone: "not_done", Withdrawn: "withdrawn",
        takeover.Beget: "beget", Recalled: "recalled", Looks: "looks", takeover.Wait: "wait",
        takeover.Choose: "choose", TimedOut: "timed_out",
    }  # fmt: skip
    return (words[type(action)],)


_OPERATIONS: Final[dict[str, type[Cancel | RetryNow | Abort | Pause | Resume]]] = {
    "cancel": Cancel, "retry": RetryNow, "abort": Abort, "pause": Pause, "resume": Resume
}  # fmt: skip


_OF_WAITS: Final[dict[str, Callable[[Attempt, Call], Event]]] = {
    "waits": lambda a, call: Waits(a, float(call[1])),
    "timed_out": lambda a, call: TimedOut(a),
    "chosen": lambda a, call: Chosen(a),
    "skipped": lambda a, call: Skipped(a, "its condition is false"),
    "unbegun": lambda a, call: Failed(a, ERROR, began=False),
    "blocked": lambda a, call: Blocked(a, "account", "another saga has it", float(call[1])),
    "signal": lambda a, call: Signal(str(call[1]), raw(int(call[2]))),
    "redo": lambda a, call: Redo(str(call[1])),
    "begot": lambda a, call: Begot(a, Raw(b"{}"), 1, 1),
    "recalled": lambda a, call: Recalled(a),
    "looks": lambda a, call: Looks(a),
    "undo_completed": lambda a, call: UndoCompleted(),
    "children": lambda a, call: Children(
        step=str(call[1]),
        open=int(call[2]),
        completed=int(call[3]),
        undone=int(call[4]),
        aborted=int(call[5]),
        result=raw(0),
        now=float(call[6]),
        round=int(call[7]),
        started=int(call[8]),
        problem=str(call[9]),
    ),
    "mark_done": lambda a, call: MarkDone(str(call[1]), raw(int(call[2])), seen=int(call[3])),
    "mark_not_done": lambda a, call: MarkNotDone(str(call[1]), seen=int(call[3])),
    "skip": lambda a, call: SkipStep(str(call[1]), seen=int(call[3])),
    "mark_undone": lambda a, call: MarkUndone(str(call[1]), seen=int(call[3])),
}


def _event(a: Attempt, call: Call) -> Event:
    word = call[0]
    if word == "succeeded":
        following = Continuation(UUID(int=1), Raw(b"{}")) if len(call) > 3 else None
        return Succeeded(a, raw(int(call[2])), Source(str(call[1])), following)
    if word == "lost":
        return Lost(a, crashed=bool(call[1]))
    if word in ("not_done", "withdrawn"):
        return NotDone(a) if word == "not_done" else Withdrawn(a)
    if word in _OPERATIONS:
        return _OPERATIONS[str(word)]()
    if word == "late_answer":
        return LateAnswer(str(call[1]))
    if word == "refused":
        return Refused(a, ERROR, partly=bool(call[1]))
    if word in _OF_WAITS:
        return _OF_WAITS[str(word)](a, call)
    kinds = {"failed": Failed, "undecided": Undecided, "unstorable": Unstorable}
    event: Event = kinds[str(word)](a, ERROR)
    return event
