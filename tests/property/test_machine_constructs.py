"""Random sagas with waits, signals, conditions, deadlines, pauses and redos, and requests at the worst moments.

Whatever is asked for may come after a worker has found out what it will record, and before it does.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from msgspec import Raw

from sagas import machine
from sagas.events import Answer, Decision, Direction, Entry, Event, Kind, Work
from sagas.fold import evolve, fold
from sagas.plan import Plan
from sagas.states import State, Status, StepStatus
from sagas.takeover import Run
from tests.support.machine_driver import Did, Driven
from tests.support.machine_worlds import TAPES, Tape, Troubled, ask, finish, plans, run

MANY = settings(max_examples=400, deadline=None, derandomize=True)
UNFORESEEN = ["cancel", "signal", "pause", "resume", "retry"]


class Raced(Driven):
    """A saga whose requests are applied while somebody holds its row: after the body, before what came of it."""

    def __init__(self, plan: Plan, tape: Tape) -> None:
        self.tape = tape
        super().__init__(plan, deadline=tape.choose([None, None, 100.0, 20_000.0]))

    def apply(self, event: Event) -> Decision:
        if isinstance(event, Answer) and (what := self.tape.choose([*[None] * 8, *UNFORESEEN])):
            self.held = True
            ask(self, what, self.tape)
            self.held = False
        return super().apply(event)


class Watched(Troubled):
    """Sees to it that no body begins where none may."""

    def __init__(self, saga: Driven, tape: Tape) -> None:
        super().__init__(saga.plan, tape)
        self.saga = saga

    def body(self, work: Work, run: Run) -> Did | Raw:
        saga, planned, step = self.saga, self.plan.by_name[work.step], machine.step_of(self.saga.state, work.step)
        assert not saga.state.paused
        assert planned.wait is None
        if work.direction is Direction.DO:
            assert step.chosen or not planned.has_when, "a body began before its condition was recorded"
            assert run.generation == step.generation
            over = saga.state.cancel_requested or (saga.state.deadline is not None and saga.now >= saga.state.deadline)
            if over and saga.plan.may_turn_back(work.step):
                assert step.do.unknown or saga.deliveries > 1, "a step began although the saga is to turn back"
        return super().body(work, run)


def lived(plan: Plan, numbers: bytes, *, redo: bool) -> Driven:
    """A saga from its start to its end."""
    tape = Tape(numbers)
    saga = Raced(plan, tape)
    world = Watched(saga, tape)
    run(saga, world, tape, redo=redo)
    finish(saga, world)
    return saga


def since_redo(saga: Driven) -> dict[str, list[Entry]]:
    """The entries about each step since it was last forgotten."""
    found: dict[str, list[Entry]] = {name: [] for name in saga.plan.by_name}
    for entry in saga.log:
        if entry.kind is Kind.REDONE and not entry.data.ignored:
            found[entry.step or ""] = []
        elif entry.step in found:
            found[entry.step].append(entry)
    return found


def check_ends(saga: Driven) -> None:
    """Completed: each step once, or skipped. Turned back: what was done is undone, and no pivot was passed."""
    for name, entries in since_redo(saga).items():
        planned, kinds = saga.plan.by_name[name], Counter(entry.kind for entry in entries)
        if saga.status is Status.COMPLETED:
            assert kinds[Kind.STEP_DONE] + kinds[Kind.STEP_SKIPPED] == 1, (name, saga.kinds)
            assert not kinds[Kind.UNDO_DONE]
        if saga.status in machine.UNDONE:
            assert kinds[Kind.STEP_DONE] <= 1
            if planned.undo is not None and (kinds[Kind.STEP_DONE] or kinds[Kind.STEP_UNKNOWN]):
                assert kinds[Kind.UNDO_DONE] == 1, (name, saga.kinds)
            if saga.plan.pivot is not None and saga.plan.position(name) >= saga.plan.pivot:
                assert not kinds[Kind.STEP_DONE], f"{name} happened and is left: {saga.kinds}"
        assert kinds[Kind.STEP_CHOSEN] <= 1, "a condition is looked at once"


@MANY
@given(plans(), TAPES)
def test_each_step_once_or_undone(plan: Plan, numbers: bytes) -> None:
    """Whatever is asked for, and whenever."""
    check_ends(lived(plan, numbers, redo=False))


@MANY
@given(plans(), TAPES)
def test_each_step_once_for_each_generation(plan: Plan, numbers: bytes) -> None:
    """With an operator who forgets steps: never one that can be undone and happened, and never the pivot."""
    saga = lived(plan, numbers, redo=True)
    check_ends(saga)
    state = State(Status.RUNNING, -1)
    for entry in saga.log:
        if entry.kind is Kind.REDONE and not entry.data.ignored:
            assert entry.step is not None
            before, planned = machine.step_of(state, entry.step), plan.by_name[entry.step]
            assert before.status is not StepStatus.DONE or (planned.undo is None and not planned.pivot)
        state = evolve(state, entry)


@MANY
@given(plans(), TAPES)
def test_no_signal_is_lost_or_taken_twice(plan: Plan, numbers: bytes) -> None:
    """Each is taken by one wait, in the order in which they came; or it is still there, or was refused with a note."""
    saga = lived(plan, numbers, redo=False)
    for name, each in plan.by_name.items():
        sent = [entry for entry in saga.log if entry.kind is Kind.SIGNALLED and entry.step == name]
        queued = [entry.seq for entry in sent if not entry.data.ignored]
        taken = [entry.data.ref for entry in saga.log if entry.step == name and entry.data.ref is not None]
        assert not queued or (each.wait and each.wait.signal)
        assert taken == queued[: len(taken)]
        assert list(machine.step_of(saga.state, name).signals) == queued[len(taken) :]


@MANY
@given(plans(), TAPES)
def test_no_granted_cancel_is_forgotten(plan: Plan, numbers: bytes) -> None:
    """A saga is completed after a cancel that was not ignored only if its pivot happened meanwhile."""
    saga = lived(plan, numbers, redo=False)
    granted = [entry.seq for entry in saga.log if entry.kind is Kind.CANCEL_REQUESTED and not entry.data.ignored]
    if saga.status is Status.COMPLETED and granted:
        assert plan.pivot is not None, saga.kinds
        pivot = machine.step_of(saga.state, plan.steps[plan.pivot].name)
        assert pivot.status is StepStatus.DONE and pivot.ended > granted[0], saga.kinds


@MANY
@given(plans(), TAPES)
def test_the_log_holds_all_of_the_state(plan: Plan, numbers: bytes) -> None:
    """Folding it gives every field, deadline and pause included; entry 0 holds what only the store's clock knows."""
    tape = Tape(numbers)
    saga = Raced(plan, tape)
    run(saga, Watched(saga, tape), tape, redo=True)
    assert fold(saga.log) == saga.state
    paused = [e.kind for e in saga.log if e.kind in (Kind.PAUSED, Kind.RESUMED)][-1:] == ["paused"]
    assert saga.state.paused == (paused and not machine.finished(saga.state))
