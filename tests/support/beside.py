"""All interleavings of a saga whose steps run side by side, over the pure machine.

Each row is begun and answered in two moves, so that everything else can happen between them: other rows begin and are
answered, workers die (the row is begun again by another), a cancel or a retry is applied. Every state is checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec import Raw

from sagas import machine
from sagas.events import (
    Answer,
    Attempt,
    Cancel,
    Decision,
    Direction,
    ErrorText,
    Event,
    Failed,
    Refused,
    RetryNow,
    Start,
    Succeeded,
    Work,
)  # fmt: skip
from sagas.fold import fold
from sagas.plan import Plan
from sagas.states import State, StepStatus
from sagas.takeover import Misplaced, Run, assess

ERROR = ErrorText(type="Error", message="no")
NULL = Raw(b"null")


class Row(NamedTuple):
    """An outbox row, and what its holder is about to answer."""

    work: Work
    deliveries: int
    begun: str  # "": nobody holds it; "run": a body is under way; else the event that is already decided


class Node(NamedTuple):
    """A saga, its rows, and how much may still go wrong."""

    state: State
    rows: tuple[Row, ...]
    bodies: tuple[tuple[str, int], ...]  # effects that happened, less those undone, by step
    faults: int
    asked: int  # cancels and retries that may still come


def key_of(node: Node) -> bytes:
    """The same for nodes from which the same can happen; numbers of log entries count by their order only."""
    state = msgspec.to_builtins(node.state)
    ends = sorted({step.get("ended", 0) for step in state["steps"].values()})
    for step in state["steps"].values():
        step["ended"] = ends.index(step.get("ended", 0))
        step.pop("result", None)
    state["seq"] = 0
    rest = (sorted(node.rows), node.bodies, node.faults, node.asked)
    return msgspec.json.encode((state, rest), order="deterministic")


class Broken(AssertionError):
    """An invariant does not hold; says how it came to that."""


def explore(plan: Plan, *, faults: int = 1, asked: int = 1) -> list[Node]:
    """Every node that can be reached; each was checked.

    Raises:
        Broken: an invariant does not hold somewhere.
    """
    decision = machine.decide(plan, None, Start(Raw(b"{}")))
    begun = tuple(Row(Work(row.step, row.direction), 0, "") for row in decision.rows)
    first = Node(decision.state, begun, tuple((step.name, 0) for step in plan.steps), faults, asked)
    seen, todo, nodes = {key_of(first)}, deque([(first, ())]), []
    leads: dict[bytes, set[bytes]] = {}
    while todo:
        node, story = todo.popleft()
        nodes.append(node)
        _check(plan, node, story)
        for what, after in _moves(plan, node):
            key = key_of(after)
            if after.faults == node.faults and after.asked == node.asked:
                leads.setdefault(key, set()).add(key_of(node))
            if key not in seen:
                seen.add(key)
                todo.append((after, (*story, what)))
    _ends_are_reached(nodes, leads)
    return nodes


def _ends_are_reached(nodes: list[Node], leads: dict[bytes, set[bytes]]) -> None:
    """From every node there is a way to an end, or to a saga that waits for a person, without further faults."""
    good = [key_of(node) for node in nodes if machine.at_rest(node.state)]
    reached, todo = set(good), deque(good)
    while todo:
        for before in leads.get(todo.popleft(), ()):
            if before not in reached:
                reached.add(before)
                todo.append(before)
    stuck = [node for node in nodes if key_of(node) not in reached]
    if stuck:
        raise Broken(f"{len(stuck)} nodes lead nowhere, such as {stuck[0]}")


def _check(plan: Plan, node: Node, story: tuple[str, ...]) -> None:
    state, work = node.state, set(machine.frontier(plan, node.state))
    free = {row.work for row in node.rows}
    undoing = {row.work for row in node.rows if row.work.direction is Direction.UNDO and row.begun}
    doing = {row.work for row in node.rows if row.work.direction is Direction.DO and row.begun == "run"}
    problems = []
    if len({row.work for row in node.rows}) != len(node.rows):
        problems.append("two rows for one work")
    if not work <= free:
        problems.append(f"no row for {work - free}")
    if any(row.work not in work and not row.begun for row in node.rows):
        problems.append("a row that nobody holds stands for nothing")
    if undoing and doing:
        problems.append(f"{undoing} is undone while {doing} may still act")
    for step in plan.steps:
        needs = [machine.step_of(state, each).status for each in plan.needs[step.name]]
        if Work(step.name, Direction.DO) in doing and not all(each is StepStatus.DONE for each in needs):
            problems.append(f"{step.name} runs before what it needs")
    happened = dict(node.bodies)
    if state.status == "completed" and any(count != 1 for count in happened.values()):
        problems.append(f"completed with {happened}")
    if state.status in machine.UNDONE and any(happened[step.name] for step in plan.steps if step.undo):
        problems.append(f"{state.status} with {happened}")
    if problems:
        raise Broken(f"{problems} after\n" + "\n".join(story))


def _moves(plan: Plan, node: Node) -> Iterator[tuple[str, Node]]:
    for place, row in enumerate(node.rows):
        others = (*node.rows[:place], *node.rows[place + 1 :])
        if not row.begun:
            yield from _begin(plan, node, row, others)
        else:
            yield from _answer(plan, node, row, others)
    if node.asked:
        yield from _ask(plan, node)


def _begin(plan: Plan, node: Node, row: Row, others: tuple[Row, ...]) -> Iterator[tuple[str, Node]]:
    action = assess(plan, node.state, _attempt(row, row.deliveries + 1))
    if isinstance(action, Misplaced):
        yield f"{row.work} is put elsewhere", _drop(plan, node, others)
    elif isinstance(action, Run):
        yield f"{row.work} begins", node._replace(rows=(*others, Row(row.work, row.deliveries + 1, "run")))
    else:
        begun = Row(row.work, row.deliveries + 1, type(action).__name__)
        yield f"{row.work} begins: {begun.begun}", node._replace(rows=(*others, begun))


def _answer(plan: Plan, node: Node, row: Row, others: tuple[Row, ...]) -> Iterator[tuple[str, Node]]:
    a = _attempt(row, row.deliveries)
    if row.begun != "run":
        event: Event = getattr(__import__("sagas.events", fromlist=[row.begun]), row.begun)(a)
        yield f"{row.work} records {row.begun}", _applied(plan, node, event, others)
        return
    done = _counted(node, row.work, +1 if row.work.direction is Direction.DO else -1)
    yield f"{row.work} succeeds", _applied(plan, done, Succeeded(a, NULL), others)
    if node.faults:
        worse = node._replace(faults=node.faults - 1)
        yield f"{row.work} refuses", _applied(plan, worse, Refused(a, ERROR), others)
        if row.work.direction is Direction.DO and not plan.by_name[row.work.step].external:
            yield f"{row.work} fails", _applied(plan, worse, Failed(a, ERROR), others)
        yield f"{row.work}: its worker dies first", worse._replace(rows=(*others, row._replace(begun="")))


def _ask(plan: Plan, node: Node) -> Iterator[tuple[str, Node]]:
    less = node._replace(asked=node.asked - 1)
    for event in (Cancel(), RetryNow()):
        decision = machine.decide(plan, node.state, event)
        if decision.entries:
            yield type(event).__name__, _take(less, decision, node.rows, None)


def _applied(plan: Plan, node: Node, event: Event, others: tuple[Row, ...]) -> Node:
    decision = machine.decide(plan, node.state, event)
    if decision.spare:
        return _drop(plan, node, others)
    assert isinstance(event, Answer)
    return _take(node, decision, others, Work(event.attempt.step, event.attempt.direction))


def _drop(plan: Plan, node: Node, others: tuple[Row, ...]) -> Node:
    """A row that stands for nothing: it goes where there is none, and goes away where there is."""
    wanted = machine.place(plan, node.state).rows
    spare = [Row(Work(row.step, row.direction), 0, "") for row in wanted]
    return node._replace(rows=(*others, *(row for row in spare if row.work not in {each.work for each in others})))


def _take(node: Node, decision: Decision, rows: tuple[Row, ...], acted: Work | None) -> Node:
    left = tuple(row for row in rows if row.work not in decision.surplus or row.begun)
    added = tuple(Row(Work(row.step, row.direction), 0, "") for row in decision.rows)
    return node._replace(state=decision.state, rows=(*left, *added))


def _counted(node: Node, work: Work, by: int) -> Node:
    bodies = tuple((name, count + by if name == work.step else count) for name, count in node.bodies)
    return node._replace(bodies=bodies)


def _attempt(row: Row, deliveries: int) -> Attempt:
    return Attempt(step=row.work.step, direction=row.work.direction, deliveries=deliveries)


__all__ = ["Broken", "Node", "explore", "fold"]
