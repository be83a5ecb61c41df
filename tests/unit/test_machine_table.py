"""The transition table: nothing in it is superfluous, nothing is missing, and all of it is true.

`explore` walks every state that a definition can reach.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from sagas import fold, machine
from sagas.events import (
    EVENTS,
    Answer,
    Attempt,
    Children,
    Decision,
    Direction,
    Event,
    Kind,
    LateAnswer,
    Looks,
    Resume,
    RetryNow,
    Signal,
    Start,
    Succeeded,
    UndoCompleted,
)
from sagas.machine import look
from sagas.plan import Plan
from sagas.states import State, Status, StepStatus
from sagas.takeover import Action, Ask, Beget, Choose, Memory, Misplaced, Run, Wait, assess
from tests.support.machine_driver import (
    Did,
    answer,
    begot,
    chosen,
    result,
    waiting,
)
from tests.support.machine_explorer import DEADLINE, NEVER_REOPENED, PAUSABLE, PLANS, TIMED, Node, explore, same
from tests.unit import (
    test_machine_children,
    test_machine_choice,
    test_machine_deadline,
    test_machine_doubt,
    test_machine_late,
    test_machine_locks,
    test_machine_not_forgotten,
    test_machine_parked_beside,
    test_machine_redo,
    test_machine_requests,
    test_machine_resolved,
    test_machine_undo,
    test_machine_unknown,
    test_machine_waits,
)


class Walk:
    """Where each event led from each status, over all plans, and every state on the way."""

    def __init__(self) -> None:
        self.led: dict[tuple[Status, type[Event]], set[Status]] = defaultdict(set)
        self.states: list[tuple[Plan, dict[object, State]]] = []
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            for name, (led, states) in zip(PLANS, pool.map(walk_over, PLANS), strict=True):
                self.states.append((PLANS[name], states))
                for entry, statuses in led.items():
                    self.led[entry] |= statuses
        for before, event, after in test_machine_late.two_settled():  # a walk over such a plan would take too long
            self.led[before.status, type(event)].add(after.status)
        for before, event, after in test_machine_children.begot_too_late():  # nor are there such plans in the walk
            self.led[before.status, type(event)].add(after.status)
        for before, event, after in test_machine_not_forgotten.after_an_abort():  # no work is left in such a state
            self.led[before.status, type(event)].add(after.status)


def walk_over(name: str) -> tuple[dict[tuple[Status, type[Event]], set[Status]], dict[object, State]]:
    """Every step there is in one of the plans: where events led, and the states."""
    led: dict[tuple[Status, type[Event]], set[Status]] = {}
    states: dict[object, State] = {}
    for deadline in (None, DEADLINE) if name in TIMED else (None,):
        for before, event, after in explore(PLANS[name], deadline=deadline, pausing=name in PAUSABLE):
            led.setdefault((before.status, type(event)), set()).add(after.status)
            states.setdefault(same(Node(after, 0)), after)
    return led, states


@pytest.fixture(scope="module")
def walk() -> Walk:
    """One walk for all tests; every decision was checked on the way."""
    return Walk()


def test_table_says_where_events_lead(walk: Walk) -> None:
    """Each target in the table is reached by some saga, and no saga gets anywhere else."""
    said = {entry: set(transition.leads_to) for entry, transition in machine.TABLE.items()}
    assert {entry: walk.led[entry] for entry in said} == said


def test_what_is_not_in_the_table_changes_nothing(walk: Walk) -> None:
    """Whatever else can happen leaves the saga as it is: finished sagas absorb everything."""
    beside = {entry: led for entry, led in walk.led.items() if entry not in machine.TABLE}
    assert all(led == {status} for (status, _), led in beside.items())
    assert {status for status, _ in beside} >= machine.TERMINAL


def test_every_event_and_status_is_in_the_table() -> None:
    """The closed lists are used up: `Start` begins a saga and finished ones do nothing."""
    assert {event for _, event in machine.TABLE} == set(EVENTS) - {Start}
    assert {status for status, _ in machine.TABLE} == set(Status) - NEVER_REOPENED
    assert {event for status, event in machine.TABLE if status in machine.TERMINAL} == {
        LateAnswer, Succeeded, UndoCompleted,
    }  # fmt: skip
    assert set(fold.EVOLVE) == set(Kind)


@pytest.mark.parametrize("found", [True, False], ids=["resolve finds it", "resolve says no"])
def test_every_state_ends_once_failures_stop(walk: Walk, found: bool) -> None:
    """From every state there is, in a world without trouble: finished within a few deliveries, or parked.

    A parked saga that an operator resumes in such a world is finished, after as many retries as it has work.
    """
    for each, states in walk.states:
        for state in states.values():
            for _ in range(len(each.steps) + 2):
                state = run_without_trouble(each, state, found)
                if state.status in machine.TERMINAL:
                    break
                state = revived(each, state)
            assert state.status in machine.TERMINAL, state


def revived(plan: Plan, state: State) -> State:
    """What an operator does about a parked saga: sends the signal that did not come, or has it tried again."""
    for work in look.parked_work(plan, state):
        planned = plan.by_name[work.step]
        if planned.wait and planned.wait.signal:
            state = machine.decide(plan, state, Signal(work.step, result(work.step))).state
    return machine.decide(plan, state, RetryNow()).state  # which changes nothing where the signal was taken


def can_look(plan: Plan, a: Attempt) -> bool:
    """Whether settling needs no late answer: there is a resolve, or the undo may be called as unknown."""
    planned = plan.by_name[a.step]
    return planned.has_resolve or machine.undo_of(planned).accepts_unknown


def run_without_trouble(plan: Plan, state: State, found: bool) -> State:
    """Bodies return, conditions hold, signals come and `resolve` answers, until there is nothing to do."""
    state = machine.decide(plan, state, Resume()).state
    for _ in range(5 * len(plan.steps) + 1):
        work = machine.frontier(plan, state)
        if not work:
            return state
        now = machine.step_of(state, work[0].step).until or 1.0
        a = Attempt(step=work[0].step, direction=work[0].direction, first_begun_at=1.0, now=now)
        kept = (
            Memory(response=result("late")) if a.direction is Direction.SETTLE and not can_look(plan, a) else Memory()
        )
        action = assess(plan, state, a, memory=kept)
        if isinstance(action, Looks):
            state = all_end(plan, state, a).state
            continue
        if isinstance(action, Misplaced):
            state = machine.decide(plan, state, Signal(a.step, result(a.step))).state
            if machine.parked(state) and machine.step_of(state, a.step).status is StepStatus.WAITING:
                return state  # taken when what parked beside it goes on
            continue
        if isinstance(action, Ask) and found and a.direction is not Direction.SETTLE:
            action = Succeeded(a, result("found"))
        elif isinstance(action, Ask):
            memory = Memory(response=result("found")) if found else Memory()
            action = assess(plan, state, a, memory=memory, not_done=not found)
        event = without_trouble(a, action)
        state = machine.decide(plan, state, event).state
    raise AssertionError(f"still at work: {state}")


def all_end(plan: Plan, state: State, a: Attempt) -> Decision:
    """The children of a step come to their end: completed, or undone where they were asked for that."""
    step, back = machine.step_of(state, a.step), machine.step_of(state, a.step).recalled
    told = {"undone": step.started} if back else {"completed": step.started, "result": result(a.step)}
    told |= {"count": 0 if back else step.total - step.started}
    return machine.decide(plan, state, Children(
        step=a.step, generation=step.generation, round=step.do.attempts, started=step.started, now=1.0, **told
    ))  # fmt: skip


def without_trouble(a: Attempt, action: Action) -> Answer:
    """What comes of an action where nothing goes wrong."""
    if isinstance(action, Run):
        event = answer(a, Did.OK)
    elif isinstance(action, Choose):
        event = chosen(a, Did.OK)
    elif isinstance(action, Wait):
        event = waiting(a, 10.0)
    elif isinstance(action, Beget):
        event = begot(a)
    else:
        assert not isinstance(action, (Ask, Misplaced))
        event = action
    assert event is not None
    return event


# --- Each entry is needed: without it an example fails ----------------------------------------------------------


def examples() -> list[Callable[[], None]]:
    """The example tests that take no arguments."""
    modules = (
        test_machine_unknown, test_machine_undo, test_machine_requests, test_machine_late, test_machine_waits,
        test_machine_choice, test_machine_deadline, test_machine_doubt, test_machine_redo, test_machine_resolved,
        test_machine_parked_beside, test_machine_locks, test_machine_children, test_machine_not_forgotten,
    )  # fmt: skip
    tests = [each for module in modules for name, each in vars(module).items() if name.startswith("test_")]
    return [each for each in tests if not inspect.signature(each).parameters]


def failing() -> str | None:
    """Name of an example that fails now."""
    for example in examples():
        try:
            example()
        except (AssertionError, KeyError):
            return example.__name__
    return None


def name_of(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)


def test_examples_pass() -> None:
    """Otherwise what follows says nothing."""
    assert failing() is None


@pytest.mark.parametrize(("status", "event"), sorted(machine.TABLE, key=str), ids=name_of)
def test_no_transition_can_be_spared(status: Status, event: type[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry of the table is there because a saga goes wrong without it."""
    monkeypatch.delitem(machine.TABLE, (status, event))
    assert failing()


@pytest.mark.parametrize("kind", sorted(fold.EVOLVE))
def test_no_log_kind_can_be_spared(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of entry is written by some saga."""
    monkeypatch.delitem(fold.EVOLVE, kind)
    assert failing()
