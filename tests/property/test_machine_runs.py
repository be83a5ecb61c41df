"""Random sagas in random worlds: what is true of every run of the state machine."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from sagas import machine
from sagas.events import (
    EVENTS,
    Abort,
    Answer,
    Attempt,
    Begot,
    Blocked,
    Cancel,
    Children,
    Chosen,
    Direction,
    Doubt,
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
from sagas.plan import Plan
from sagas.states import State, Status, StepStatus
from sagas.takeover import Memory, Misplaced, assess
from tests.support.machine_driver import ERROR, INPUT, Driven, result, wait
from tests.support.machine_worlds import TAPES, Tape, Troubled, begun, finish, plans, run

FEW = settings(max_examples=100, deadline=None, derandomize=True)
MANY = settings(max_examples=250, deadline=None, derandomize=True)


def lived(plan: Plan, numbers: bytes, *, redo: bool = False) -> tuple[Driven, Troubled]:
    """A saga after as much trouble as the tape has; `Driven` held every decision against the invariants."""
    tape = Tape(numbers)
    saga, world = begun(plan, tape), Troubled(plan, tape)
    run(saga, world, tape, redo=redo)
    return saga, world


@MANY
@given(plans(), TAPES)
def test_every_run_ends_once_failures_stop(plan: Plan, numbers: bytes) -> None:
    """Finished, or parked; and what is parked is finished once it is resumed in a world without trouble."""
    saga, world = lived(plan, numbers)
    finish(saga, world)


@MANY
@given(plans(), TAPES)
def test_undo_is_the_exact_reverse_of_what_was_done(plan: Plan, numbers: bytes) -> None:
    """Every step that happened or may have is undone once, last first; nothing else is, and nothing is left out."""
    saga, world = lived(plan, numbers)
    finish(saga, world)
    if saga.status not in machine.UNDONE:
        assert saga.status is not Status.COMPLETED or not saga.steps_of(Kind.UNDO_DONE)
        return
    ended = saga.steps_of(Kind.STEP_DONE, Kind.STEP_UNKNOWN, Kind.STEP_NOT_DONE)
    kinds = {entry.step: entry.kind for entry in saga.log if entry.step in ended and entry.kind.startswith("step_")}
    undone = [name for name in reversed(ended) if has_to_be_undone(plan, saga, name, kinds[name])]
    assert saga.steps_of(Kind.UNDO_DONE) == undone
    settled = [name for name in undone if kinds[name] is not Kind.STEP_DONE]
    assert [name for name in saga.steps_of(Kind.SETTLE_DONE) if name in undone] == settled


def has_to_be_undone(plan: Plan, saga: Driven, name: str, kind: Kind) -> bool:
    undo = plan.by_name[name].undo
    if undo is None:
        return False
    tombstone = undo.accepts_unknown and saga.state.steps[name].do.unknown
    return kind is not Kind.STEP_NOT_DONE or tombstone


@FEW
@given(plans(), TAPES)
def test_every_state_handles_every_event(plan: Plan, numbers: bytes) -> None:
    """About any step, known or not, in any direction: an answer is found, and late ones change nothing."""
    saga, _ = lived(plan, numbers)
    next_work = machine.frontier(plan, saga.state)
    for event in every_event(plan):
        decision = machine.decide(plan, saga.state, event)
        after_abort = saga.state.status is Status.ABORTED and isinstance(event, Succeeded)  # which the log is to know
        if isinstance(event, Answer) and about(event) not in next_work and not after_abort:
            assert (decision.entries, decision.state) == ((), saga.state)
            assert decision.rows == machine.rows(plan, saga.state, now=event.attempt.now)
        reopens = isinstance(event, LateAnswer) and saga.status in machine.UNDONE
        reopens = reopens or (isinstance(event, UndoCompleted) and saga.status is Status.COMPLETED)
        if after_abort:
            assert (decision.state.status, decision.rows) == (Status.ABORTED, ())
        elif saga.status in machine.TERMINAL and not reopens:
            assert (decision.entries, decision.state, decision.rows) == ((), saga.state, ())


@FEW
@given(plans(), TAPES, st.booleans())
def test_every_delivery_is_assessed(plan: Plan, numbers: bytes, not_done: bool) -> None:
    """Whatever row is begun: the work that is next is carried out, and any other row is out of place."""
    saga, _ = lived(plan, numbers)
    for a in every_attempt(plan):
        for memory in (Memory(), Memory(closed=True), Memory(response=result("late"))):
            action = assess(plan, saga.state, a, memory=memory, not_done=not_done)
            is_next = Work(a.step, a.direction) in machine.frontier(plan, saga.state)
            woken_early = is_next and machine.step_of(saga.state, a.step).status is StepStatus.WAITING
            assert isinstance(action, Misplaced) is not is_next or woken_early


@MANY
@given(plans(), TAPES)
def test_pivot_and_what_follows_are_never_undone(plan: Plan, numbers: bytes) -> None:
    """Once the pivot happened, or may have, nothing is ever undone."""
    saga, world = lived(plan, numbers)
    finish(saga, world)
    if plan.pivot is not None:
        pivot = machine.step_of(saga.state, plan.steps[plan.pivot].name)
        decided = pivot.status is StepStatus.DONE or (pivot.do.unknown and plan.steps[plan.pivot].external)
        assert not (decided and saga.steps_of(Kind.UNDO_DONE))


@FEW
@given(plans(), TAPES)
def test_bodies_are_bounded_by_max_attempts(plan: Plan, numbers: bytes) -> None:
    """Between two words of an operator no step of the outside world begins more often than its author allowed."""
    saga, world = lived(plan, numbers)
    resumed = [Work(entry.step, entry.data.direction) for entry in saga.log if entry.step and entry.data.direction
               and entry.kind is Kind.RETRIED]  # fmt: skip
    for work, times in world.ran.items():
        planned = plan.by_name[work.step]
        retry = planned.retry if work.direction is Direction.DO or planned.undo is None else planned.undo.retry
        if planned.external:
            assert times <= retry.max_attempts * (1 + resumed.count(work)), saga.kinds


def every_attempt(plan: Plan) -> Iterator[Attempt]:
    """First and later deliveries of every step there is, and of one that is not."""
    for name in (*plan.by_name, "unheard of"):
        for direction in Direction:
            for deliveries in (1, 5):
                yield Attempt(step=name, direction=direction, deliveries=deliveries, first_begun_at=1.0, now=2.0)


def every_event(plan: Plan) -> Iterator[Event]:
    """Every event but `Start` about every attempt, where such an answer can be about such a step."""
    yield from (Cancel(), RetryNow(), Abort(), Rebuild(), Doubt(), Pause(), Resume(), UndoCompleted())
    for name in (*plan.by_name, "unheard of"):
        yield from (LateAnswer(name), Redo(name), Signal(name, result(name)), Children(step=name, completed=1))
        yield from (MarkDone(name), MarkNotDone(name), SkipStep(name), MarkUndone(name), MarkDone(name, seen=0))
    for a in every_attempt(plan):
        yield from (Waits(a, None), Waits(a, 3.0), Chosen(a), Skipped(a, "not needed"), Failed(a, ERROR, began=False))
        planned = plan.by_name.get(a.step)
        if planned is None or planned.wait is not None or a.direction is not Direction.DO:
            yield TimedOut(a)
        if planned is None or planned.wait is None:
            yield Blocked(a, "account:7", "held by another", wait=5.0)
        if planned is None or a.direction is Direction.SETTLE:  # no step here has children
            yield from (Begot(a, result(a.step), 1, 1), Recalled(a), Looks(a))
        yield from (Succeeded(a, result(a.step)), Failed(a, ERROR), Failed(a, ERROR, give_up=True), Refused(a, ERROR))
        yield from (Unstorable(a, ERROR), Undecided(a), NotDone(a), Lost(a), Lost(a, crashed=True), Withdrawn(a))


def about(event: Answer) -> Work:
    return Work(event.attempt.step, event.attempt.direction)


def test_the_events_tried_are_all_there_are() -> None:
    """A new event has to be tried here too."""
    plan = Plan(name="p", version=1, steps=(wait("a"),))
    assert {type(event) for event in every_event(plan)} | {Start} == set(EVENTS)
    assert isinstance(machine.decide(plan, None, Start(INPUT)).state, State)
