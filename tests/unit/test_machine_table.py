"""The transition table: nothing in it is superfluous, nothing is missing, and all of it is true.

`explore` walks every state that a definition can reach, whatever bodies, `resolve`, workers and callers do.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from sagas import fold, machine
from sagas.events import (
    EVENTS,
    Abort,
    Answer,
    Attempt,
    Cancel,
    Direction,
    Event,
    Kind,
    LateAnswer,
    Rebuild,
    RetryNow,
    Start,
    Succeeded,
    Undecided,
    Work,
)
from sagas.plan import Plan
from sagas.retry import Retry
from sagas.states import State, Status, StepState, StepStatus, Track
from sagas.takeover import Action, Ask, Memory, Misplaced, Run, assess
from tests.support.machine_driver import (
    ACCEPTS,
    COMPENSATE,
    ERROR,
    INPUT,
    Did,
    answer,
    check_decision,
    local,
    pivot,
    plan,
    result,
    step,
    undo,
)
from tests.unit import test_machine_late, test_machine_requests, test_machine_undo, test_machine_unknown

TWICE = Retry(max_attempts=2)
ONCE = Retry(max_attempts=1)
FEW = {"retry": TWICE, "max_deliveries": 2}
RESOLVED_UNDO = undo(has_resolve=True, accepts_unknown=True, retry=TWICE)

PLANS = {
    "asked": plan(step("a", has_resolve=True, undo=RESOLVED_UNDO, **FEW)),
    "asked, undone by result": plan(step("a", has_resolve=True, undo=undo(retry=TWICE), key_ttl=10.0, **FEW)),
    "asked, nothing to undo": plan(step("a", has_resolve=True, undo=None, on_unknown=COMPENSATE, **FEW)),
    "compensated as unknown": plan(step("a", undo=ACCEPTS, on_unknown=COMPENSATE, **FEW), local("b", retry=ONCE)),
    "nothing to undo": plan(step("a", undo=None, on_unknown=COMPENSATE, **FEW)),
    "local": plan(local("a", **FEW), local("b", undo=None, **FEW)),
    "undone, then compensated as unknown": plan(
        step("a", undo=undo(retry=ONCE), retry=ONCE, max_deliveries=1),
        step("b", undo=ACCEPTS, on_unknown=COMPENSATE, retry=ONCE, max_deliveries=1),
    ),
    "pivot": plan(
        step("a", undo=ACCEPTS, retry=ONCE, max_deliveries=1),
        pivot("b", has_resolve=True, **FEW),
        step("c", undo=None, has_resolve=True, retry=ONCE, max_deliveries=1),
    ),
}


NEVER_REOPENED = machine.TERMINAL - machine.UNDONE


class Node(NamedTuple):
    """A state, and how many deliveries of its work were lost."""

    state: State
    lost: int


def same(node: Node) -> object:
    """What tells nodes apart: neither numbers that only grow nor how finished work went."""
    state = node.state
    if state.status in NEVER_REOPENED:
        return state.status
    steps = tuple(
        (name, each.status, each.unsettled, each.again, each.do.unknown, *map(same_track, tracks_that_matter(each)))
        for name, each in sorted(state.steps.items(), key=lambda item: item[1].ended)
    )
    return state.status, state.parked_from, state.cancel_requested, steps, node.lost


def tracks_that_matter(each: StepState) -> tuple[Track, ...]:
    if each.status is StepStatus.UNDONE:
        return (each.settle,)
    return (each.do,) if each.status is StepStatus.PENDING else (each.undo, each.settle)


def same_track(track: Track) -> Track:
    return replace(track, attempts=track.attempts - track.budget, budget=0, failures=0)


def explore(plan: Plan) -> Iterator[tuple[State, Event, State]]:
    """Every step there is from every state that can be reached: state, event, state."""
    start = Node(machine.decide(plan, None, Start(INPUT)).state, 0)
    seen, left = {same(start)}, [start]
    while left:
        node = left.pop()
        for before, event in moves(plan, node):
            if event is None:
                after = Node(before, node.lost + 1)
            else:
                decision = machine.decide(plan, before, event)
                check_decision(plan, before, event, decision)
                yield before, event, decision.state
                leaves_row = not isinstance(event, Answer) and machine.frontier(plan, before)
                after = Node(decision.state, node.lost if leaves_row else 0)
            if same(after) not in seen:
                seen.add(same(after))
                left.append(after)


def moves(plan: Plan, node: Node) -> Iterator[tuple[State, Event | None]]:
    """Whatever can happen next, in this state or in what a cancel made of it meanwhile; None: the worker dies."""
    for request in (Cancel(), RetryNow(), Abort(), Rebuild(), *map(LateAnswer, late_answers(plan, node.state))):
        yield node.state, request
    cancelled = machine.decide(plan, node.state, Cancel()).state
    for work in machine.frontier(plan, node.state):
        for event in answers(plan, node, work):
            yield node.state, event
            if event is not None and cancelled.cancel_requested and not node.state.cancel_requested:
                yield cancelled, event


def late_answers(plan: Plan, state: State) -> list[str]:
    """The steps whose compensation has begun, and an attempt of which may still bring an answer."""
    if state.status is Status.RUNNING or state.parked_from is Status.RUNNING or state.status in NEVER_REOPENED:
        return []
    closed = {work.step for work in machine.frontier(plan, state)}
    return [
        name
        for name, each in sorted(state.steps.items())
        if plan.by_name[name].external and each.do.attempts and (each.status is StepStatus.UNDONE or name in closed)
    ]


def answers(plan: Plan, node: Node, work: Work) -> Iterator[Answer | None]:
    """Whatever can come of the next delivery."""
    track = fold.track_of(machine.step_of(node.state, work.step), work.direction)
    settling = work.direction is Direction.SETTLE
    doubt = track.unknown or node.lost > 0 or settling
    memories = (Memory(), Memory(closed=True, response=result("late")))[: 2 if doubt else 1]
    if settling and not machine.undo_of(plan.by_name[work.step]).accepts_unknown:
        memories = memories[0 if plan.by_name[work.step].has_resolve else 1 :]
    times = (1.0, 99.0) if plan.by_name[work.step].key_ttl else (1.0,)
    for memory, now in product(memories, times):
        a = Attempt(step=work.step, direction=work.direction, deliveries=node.lost + 1, first_begun_at=1.0, now=now)
        yield from outcomes(plan, node.state, a, assess(plan, node.state, a, memory=memory))


def outcomes(plan: Plan, state: State, a: Attempt, action: Action) -> Iterator[Answer | None]:
    """What can come of what a worker is to do."""
    assert not isinstance(action, Misplaced)
    if isinstance(action, Ask):
        yield None
        yield Undecided(a, ERROR)
        yield from outcomes(plan, state, a, assess(plan, state, a, not_done=True))
        if a.direction is Direction.SETTLE:
            found = assess(plan, state, a, memory=Memory(response=result("late")))
            yield from outcomes(plan, state, a, found)
        else:
            yield Succeeded(a, result("found"))
        if a.direction is not Direction.UNDO:
            yield answer(a, Did.UNSTORABLE)
    elif isinstance(action, Run):
        ends = {Did.OK, Did.FAIL, Did.GIVE_UP, Did.REFUSE, Did.DIE}
        if a.direction is Direction.DO and plan.by_name[a.step].external:
            ends.add(Did.UNSTORABLE)
        yield from (answer(a, did) for did in sorted(ends, key=lambda did: did.name))
    else:
        yield action


class Walk:
    """Where each event led from each status, over all plans, and every state on the way."""

    def __init__(self) -> None:
        self.led: dict[tuple[Status, type[Event]], set[Status]] = defaultdict(set)
        self.states: list[tuple[Plan, dict[object, State]]] = []
        for each in PLANS.values():
            states: dict[object, State] = {}
            for before, event, after in explore(each):
                self.led[before.status, type(event)].add(after.status)
                states.setdefault(same(Node(after, 0)), after)
            self.states.append((each, states))
        for before, event, after in test_machine_late.two_settled():  # a walk over such a plan would take too long
            self.led[before.status, type(event)].add(after.status)


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
    assert {event for status, event in machine.TABLE if status in machine.TERMINAL} == {LateAnswer}
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
                state = machine.decide(each, state, RetryNow()).state
            assert state.status in machine.TERMINAL, state


def can_look(plan: Plan, a: Attempt) -> bool:
    """Whether settling needs no late answer: there is a resolve, or the undo may be called as unknown."""
    planned = plan.by_name[a.step]
    return planned.has_resolve or machine.undo_of(planned).accepts_unknown


def run_without_trouble(plan: Plan, state: State, found: bool) -> State:
    """Bodies return and `resolve` answers, until there is nothing to do."""
    for _ in range(4 * len(plan.steps) + 1):
        work = machine.frontier(plan, state)
        if not work:
            return state
        a = Attempt(step=work[0].step, direction=work[0].direction, first_begun_at=1.0, now=1.0)
        kept = (
            Memory(response=result("late")) if a.direction is Direction.SETTLE and not can_look(plan, a) else Memory()
        )
        action = assess(plan, state, a, memory=kept)
        if isinstance(action, Ask) and found and a.direction is not Direction.SETTLE:
            action = Succeeded(a, result("found"))
        elif isinstance(action, Ask):
            memory = Memory(response=result("found")) if found else Memory()
            action = assess(plan, state, a, memory=memory, not_done=not found)
        event = answer(a, Did.OK) if isinstance(action, Run) else action
        assert event is not None
        assert not isinstance(event, (Ask, Misplaced))
        state = machine.decide(plan, state, event).state
    raise AssertionError(f"still at work: {state}")


# --- Each entry is needed: without it an example fails ----------------------------------------------------------


def examples() -> list[Callable[[], None]]:
    """The example tests that take no arguments."""
    modules = (test_machine_unknown, test_machine_undo, test_machine_requests, test_machine_late)
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
