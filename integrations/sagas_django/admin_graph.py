"""The steps of one saga as a graph: what needs what, and where each stands. Sizes are in SVG units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.utils.translation import gettext as _

from sagas.plan import Plan, StepPlan
from sagas.progress import StepLine
from sagas_django.wording import DIRECTION, STEP_STATUS, word

WIDTH: Final = 150
HEIGHT: Final = 50
GAP: Final = 44  # between layers, where the arrows are
SPACE: Final = 16  # between steps side by side
EDGE: Final = 8
LONGEST: Final = 20  # characters of a name


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One step."""

    name: str
    label: str
    sort: str  # local, external, a wait ...
    status: str  # for the stylesheet
    word: str
    x: int
    y: int
    next: bool
    parked: bool
    pivot: bool
    unknown: bool
    title: str  # all of it in words


@dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
    """All of it."""

    nodes: tuple[Node, ...]
    edges: tuple[str, ...]  # paths
    width: int
    height: int


def graph(plan: Plan | None, lines: Sequence[StepLine]) -> Graph | None:
    """The graph of a saga; None where its definition is not known.

    Args:
        plan: its definition.
        lines: its steps.
    """
    if plan is None or not plan.steps:
        return None
    layers = _layers(plan)
    places = {
        name: (EDGE + column * (WIDTH + GAP), EDGE + row * (HEIGHT + SPACE))
        for column, names in enumerate(layers)
        for row, name in enumerate(names)
    }
    by_name = {line.name: line for line in lines}
    nodes = tuple(_node(step, by_name[step.name], *places[step.name]) for step in plan.steps if step.name in by_name)
    edges = tuple(
        _edge(places[need], places[step.name]) for step in plan.steps for need in plan.needs[step.name]
    )  # fmt: skip
    return Graph(
        nodes=nodes, edges=edges, width=2 * EDGE + len(layers) * (WIDTH + GAP) - GAP,
        height=2 * EDGE + max(map(len, layers)) * (HEIGHT + SPACE) - SPACE,
    )  # fmt: skip


def _layers(plan: Plan) -> list[list[str]]:
    """Each step right of all that it needs."""
    column: dict[str, int] = {}
    for step in plan.steps:
        column[step.name] = 1 + max((column[need] for need in plan.needs[step.name]), default=-1)
    return [[name for name, at in column.items() if at == each] for each in range(max(column.values()) + 1)]


def _edge(before: tuple[int, int], after: tuple[int, int]) -> str:
    x, y = before[0] + WIDTH, before[1] + HEIGHT // 2
    to_x, to_y = after[0] - 3, after[1] + HEIGHT // 2
    middle = to_x - GAP // 2
    return f"M{x},{y} H{middle} V{to_y} H{to_x}"


def _node(step: StepPlan, line: StepLine, x: int, y: int) -> Node:
    state, status = line.state, word(STEP_STATUS, line.state.status)
    words = [f"{step.name}: {sort_of(step)}", status]
    words += [_("decides whether the saga can still be undone")] if step.pivot else []
    words += [_("next: %(direction)s") % {"direction": word(DIRECTION, line.next)}] if line.next else []
    words += [_("waits for a person")] if state.parked else []
    words += [_("outcome of an attempt unknown")] if line.unknown else []
    return Node(
        name=step.name, label=step.name if len(step.name) <= LONGEST else step.name[: LONGEST - 1] + "…",
        sort=sort_of(step), status=state.status.value, word=status, x=x, y=y, next=line.next is not None,
        parked=state.parked, pivot=step.pivot, unknown=line.unknown, title=", ".join(words),
    )  # fmt: skip


def sort_of(step: StepPlan) -> str:
    """What sort of step it is, in words."""
    if getattr(step, "children", None) is not None:
        return _("other sagas")
    if step.wait is not None:
        return _("signal") if step.wait.signal else _("sleep")
    return _("external") if step.external else _("local")
