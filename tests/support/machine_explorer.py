"""Every state that a definition can reach, whatever bodies, `resolve`, workers, callers and operators do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as replace_plan
from itertools import product
from typing import Any, NamedTuple

from msgspec.structs import replace

from sagas import fold, machine
from sagas.events import (
    Abort,
    Answer,
    Attempt,
    Cancel,
    Children,
    Direction,
    Doubt,
    Event,
    Failed,
    LateAnswer,
    MarkDone,
    MarkNotDone,
    MarkUndone,
    Pause,
    Rebuild,
    Redo,
    Resume,
    RetryNow,
    Signal,
    SkipStep,
    Succeeded,
    Undecided,
    UndoCompleted,
    Work,
)
from sagas.plan import ChildrenPlan, OnTimeout, Plan, StepPlan
from sagas.retry import Retry
from sagas.states import State, Status, StepState, StepStatus, Track
from sagas.takeover import Action, Ask, Beget, Choose, Memory, Misplaced, Run, Wait, assess
from tests.support.machine_checks import check_decision, work_of
from tests.support.machine_driver import (
    ACCEPTS,
    COMPENSATE,
    ERROR,
    Did,
    answer,
    begot,
    child,
    chosen,
    local,
    pivot,
    plan,
    result,
    sleep,
    started,
    step,
    undo,
    wait,
    waiting,
)

WORDS = (MarkDone, MarkNotDone, SkipStep, MarkUndone)  # of an operator about a step
TWICE = Retry(max_attempts=2)
ONCE = Retry(max_attempts=1)
FEW = {"retry": TWICE, "max_deliveries": 2}
QUICK = {"retry": ONCE, "max_deliveries": 1}
RESOLVED_UNDO = undo(has_resolve=True, accepts_unknown=True, retry=TWICE)


def beside(one: StepPlan) -> StepPlan:
    """The step, needing no other."""
    return replace_plan(one, after=())


PLANS = {
    "asked": plan(step("a", has_resolve=True, undo=RESOLVED_UNDO, **FEW)),
    "asked, undone by result": plan(step("a", has_resolve=True, undo=undo(retry=TWICE), key_ttl=10.0, **FEW)),
    "asked, nothing to undo": plan(step("a", has_resolve=True, undo=None, on_unknown=COMPENSATE, **FEW)),
    "compensated as unknown": plan(step("a", undo=ACCEPTS, on_unknown=COMPENSATE, **FEW), local("b", retry=ONCE)),
    "nothing to undo": plan(step("a", undo=None, on_unknown=COMPENSATE, **FEW)),
    "local": plan(local("a", **FEW), local("b", undo=None, **FEW)),
    "undone, then compensated as unknown": plan(
        step("a", undo=undo(retry=ONCE), **QUICK),
        step("b", undo=ACCEPTS, on_unknown=COMPENSATE, **QUICK),
    ),
    "pivot": plan(
        step("a", undo=ACCEPTS, **QUICK),
        pivot("b", has_resolve=True, **FEW),
        step("c", undo=None, has_resolve=True, **QUICK),
    ),
    "waits, then turns back": plan(
        local("a", undo=undo(external=False, retry=ONCE), **QUICK), wait("b", OnTimeout.COMPENSATE)
    ),
    "waits last": plan(local("a", undo=None, **QUICK), wait("b")),
    "waits, then a step that parks": plan(wait("a"), step("b", undo=None, **QUICK)),
    "waits first": plan(wait("a", OnTimeout.COMPENSATE), sleep("b")),
    "waits, then goes on without": plan(wait("a", OnTimeout.SKIP), local("b", undo=None, **QUICK)),
    "waits after the pivot": plan(pivot("a", **QUICK), wait("b"), wait("c", OnTimeout.SKIP)),
    "chooses": plan(step("a", has_when=True, undo=None, **FEW)),
    "chooses, then compensated as unknown": plan(
        step("a", has_when=True, undo=ACCEPTS, on_unknown=COMPENSATE, **QUICK),
        local("b", **QUICK),
    ),
    "asked beside one that parks": plan(
        beside(step("a", has_resolve=True, undo=RESOLVED_UNDO, **FEW)), beside(step("b", undo=None, **QUICK))
    ),
    "asked beside a local one": plan(
        beside(local("a", **QUICK)), beside(step("b", has_resolve=True, undo=undo(retry=ONCE), **QUICK))
    ),
    "waits beside one that parks": plan(beside(wait("a", OnTimeout.SKIP)), beside(step("b", undo=None, **QUICK))),
    "chooses beside one that parks": plan(
        beside(local("a", has_when=True, undo=None, **QUICK)), beside(step("b", undo=None, **QUICK))
    ),
    "chooses the pivot": plan(local("a", **QUICK), pivot("b", has_when=True, **QUICK), local("c", undo=None, **QUICK)),
    "chooses, in doubt before its turn": plan(local("a", **QUICK), step("b", has_when=True, undo=ACCEPTS, **QUICK)),
    "locks": plan(local("a", **QUICK), step("b", has_lock=True, undo=None, **FEW)),
    "locks, then parks": plan(step("a", has_lock=True, **FEW)),
    "locks beside one that parks": plan(
        beside(step("a", has_lock=True, undo=None, **FEW)), beside(step("b", undo=None, **QUICK))
    ),
}
PLANS |= {
    "child": plan(local("a", **QUICK), child("b")),
    "child, then a step": plan(child("a"), step("b", undo=None, **QUICK)),
    "child, tried twice": plan(child("a", retry=TWICE)),
    "child after the pivot": plan(pivot("a", **QUICK), child("b", undo=None)),
    "children": plan(child("a", children=ChildrenPlan(at_once=2)), local("b", undo=None, **QUICK)),
    "children, one of them may fail": plan(child("a", children=ChildrenPlan(at_once=2, tolerated=1))),
    "children after the pivot": plan(pivot("a", **QUICK), child("b", undo=None, children=ChildrenPlan(at_once=2))),
    "child beside one that parks": plan(beside(child("a")), beside(step("b", undo=None, **QUICK))),
    "child, then compensated as unknown": plan(child("a"), step("b", undo=ACCEPTS, on_unknown=COMPENSATE, **QUICK)),
}
DECIDED = [PLANS[name] for name in (  # of which an operator says what became of steps: enough of them to see it all
    "asked, undone by result", "compensated as unknown", "undone, then compensated as unknown", "pivot",
    "chooses beside one that parks", "waits beside one that parks",
)]  # fmt: skip
RESTORED = [  # in which the database may go back in time
    PLANS[name]
    for name in (
        "asked", "asked, undone by result", "compensated as unknown", "chooses, in doubt before its turn",
        "asked beside a local one",
    )
]  # fmt: skip
DEADLINE = 50.0  # some of these moments are before it, some after
TIMED = {"nothing to undo", "waits first", "waits, then goes on without", "chooses", "chooses the pivot"}
PAUSABLE = {"waits first", "waits last", "waits, then a step that parks"}


NEVER_REOPENED = machine.TERMINAL - {status for status, _ in machine.TABLE}


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
        (name, each.status, each.unsettled, each.again, each.do.unknown, each.chosen, each.until, len(each.signals),
         each.blocked, each.open, each.parked, each.recalled, each.total,
         each.started, *map(same_track, tracks_that_matter(each)))
        for name, each in sorted(state.steps.items(), key=lambda item: item[1].ended)
    )  # fmt: skip
    return state.status, state.parked_from, state.cancel_requested, state.paused, state.failing, steps, node.lost


def tracks_that_matter(each: StepState) -> tuple[Track, ...]:
    if each.status is StepStatus.UNDONE:
        return (each.settle,)
    unfinished = each.status in (StepStatus.PENDING, StepStatus.WAITING)
    return (each.do,) if unfinished else (each.undo, each.settle)


def same_track(track: Track) -> Track:
    return replace(track, attempts=track.attempts - track.budget, budget=0, failures=0)


def explore(
    plan: Plan, *, deadline: float | None = None, pausing: bool = False
) -> Iterator[tuple[State, Event, State]]:
    """Every step there is from every state that can be reached: state, event, state."""
    start = Node(started(plan, deadline).state, 0)
    seen, left = {same(start)}, [start]
    while left:
        node = left.pop()
        open_work = machine.frontier(plan, node.state)
        for before, event in moves(plan, node, pausing):
            if event is None:
                after = Node(before, node.lost + 1)
            else:
                decision = machine.decide(plan, before, event)
                check_decision(plan, before, event, decision)
                work = open_work if before is node.state else machine.frontier(plan, before)
                if not isinstance(event, Answer) or work_of(event) in work:
                    yield before, event, decision.state
                leaves_row = not isinstance(event, Answer) and work
                after = Node(decision.state, node.lost if leaves_row else 0)
            if (known := same(after)) not in seen and (pausing or not after.state.paused):
                seen.add(known)
                left.append(after)


def moves(plan: Plan, node: Node, pausing: bool) -> Iterator[tuple[State, Event | None]]:
    """Whatever can happen next, in this state or in what a request made of it meanwhile; None: the worker dies."""
    requests: list[Event] = [Cancel(), RetryNow(), Abort(), Rebuild(), Pause(), Resume()]
    requests += [Doubt()] if any(plan is each for each in RESTORED) else []
    requests += map(LateAnswer, late_answers(plan, node.state))
    requests += [UndoCompleted(), *children(plan, node.state)]
    requests += [Signal("unheard of", result("a")), *signals(plan, node.state), *map(Redo, plan.by_name)]
    if any(plan is each for each in DECIDED):
        named = list(plan.by_name) if machine.parked(node.state) else [plan.steps[0].name]  # else it is only noted
        requests += [word(name) for name in named for word in WORDS]
    for request in requests:
        yield node.state, request
    meanwhile: list[Event] = [Cancel(), *signals(plan, node.state), *([Pause()] if pausing else [])]
    states = [machine.decide(plan, node.state, request).state for request in meanwhile]
    for work in machine.frontier(plan, node.state):
        for event in answers(plan, node, work):
            yield node.state, event
            if event is not None:
                yield from ((state, event) for state in states if replace(state, seq=node.state.seq) != node.state)


def children(plan: Plan, state: State) -> list[Children]:
    """However the children of a step may stand."""
    found: list[Children] = []
    for planned in plan.steps:
        step = machine.step_of(state, planned.name)
        if planned.children is not None and step.started:
            told = {
                "step": planned.name,
                "generation": step.generation,
                "now": 1.0,
                "started": step.started,
                "round": step.do.attempts,
                "reason": "its child has ended",
            }
            if planned.children.at_once > 1:
                found += some_of(step, told)
                continue
            found += [
                Children(open=step.started, **told), Children(completed=1, result=result(planned.name), **told),
                Children(completed=1, problem="its result is gone", **told), Children(undone=1, **told),
                Children(aborted=1, **told), Children(undone=1, **told | {"now": 99.0}),
            ]  # fmt: skip
    return found


def some_of(step: StepState, told: dict[str, Any]) -> list[Children]:
    """However several of them may stand; the next one can be started, where there is one."""
    more = {"count": min(1, step.total - step.started)}
    many = [each for each in product(range(3), repeat=4) if sum(each) == step.started]
    return [
        Children(open=one, completed=two, undone=three, aborted=four, result=result(step.status), **more, **told)
        for one, two, three, four in many
    ]  # fmt: skip


def signals(plan: Plan, state: State) -> list[Signal]:
    """One for each wait that has none; what more of them do is in the examples."""
    waits = [each.name for each in plan.steps if each.wait and each.wait.signal]
    return [Signal(name, result(name)) for name in waits if not machine.step_of(state, name).signals]


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
    timed = (
        plan.by_name[work.step].key_ttl
        or plan.by_name[work.step].children
        or plan.by_name[work.step].wait
        or plan.by_name[work.step].has_lock
        or node.state.deadline
    )
    for memory, now in product(memories, (1.0, 99.0) if timed else (1.0,)):
        a = Attempt(step=work.step, direction=work.direction, deliveries=node.lost + 1, first_begun_at=1.0, now=now)
        action = assess(plan, node.state, a, memory=memory)
        if isinstance(action, Run | Ask | Choose | Wait | Beget):
            yield Failed(a, ERROR, began=False, misfit=True)
        for event in outcomes(plan, node.state, a, action):
            yield event
            if event is not None and node.state.deadline is not None and now < node.state.deadline:
                yield replace(event, attempt=replace(a, now=99.0))  # it took its time


def outcomes(plan: Plan, state: State, a: Attempt, action: Action) -> Iterator[Answer | None]:
    """What can come of what a worker is to do."""
    if isinstance(action, Misplaced):
        assert machine.step_of(state, a.step).status is StepStatus.WAITING, "woken early"
        assert machine.place(plan, state, a.now).state == state
    elif isinstance(action, Choose):
        yield from (chosen(a, did) for did in (Did.OK, Did.SKIP, Did.FAIL, Did.DIE))
    elif isinstance(action, Wait):
        wait = plan.by_name[a.step].wait
        yield from (waiting(a, until) for until in (10.0, Did.FAIL, Did.DIE))
        if wait is not None and wait.signal:
            yield waiting(a, None)
    elif isinstance(action, Beget):
        planned = plan.by_name[a.step].children
        many = planned is not None and planned.at_once > 1
        yield from (begot(a, 0, 0), begot(a, 1, 2), begot(a, 2, 2)) if many else (begot(a),)
        yield from (Failed(a, ERROR, began=False), None)
    elif isinstance(action, Ask):
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
        if a.direction is Direction.DO and plan.by_name[a.step].has_lock:
            ends |= {Did.BLOCKED, Did.HELD}
        yield from (answer(a, did) for did in sorted(ends, key=lambda did: did.name))
    else:
        yield action
