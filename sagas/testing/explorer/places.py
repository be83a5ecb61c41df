"""Where a fault can strike: every body, compensation and `resolve` of a saga, under the name its author gave it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sagas.definition import Saga
from sagas.events import Direction
from sagas.plan import Plan
from sagas.step import Step
from sagas.waits import Wait

SagaClass = type[Saga[Any]]
LAST_LOOK = " (last look)"


class Part(StrEnum):
    """Which function of a step."""

    DO = "do"
    RESOLVE = "resolve"
    UNDO = "undo"
    UNDO_RESOLVE = "undo resolve"
    SETTLE = "settle"  # the compensation once more, after the saga has turned back


PARTS = {  # by what an attempt is about: the functions that it may call
    Direction.DO: (Part.DO, Part.RESOLVE),
    Direction.UNDO: (Part.UNDO, Part.UNDO_RESOLVE),
    Direction.SETTLE: (Part.SETTLE, Part.RESOLVE),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One function of one step."""

    step: str
    part: Part
    label: str  # what the story calls it: the name of the function
    external: bool
    asks: bool = False  # there is a `resolve` for it
    is_undone: bool = False  # a step that has a compensation, which may be called
    attempts: int = 1  # as declared: how often its body may begin
    waits: bool = False  # for a signal or a time; it has no body
    beside: tuple[str, ...] = ()  # steps with a body that may run at the same time, in declared order
    comes_first: bool = True  # of these, and itself, where nothing is wrong

    @property
    def is_question(self) -> bool:
        """Whether it only looks."""
        return self.part in (Part.RESOLVE, Part.UNDO_RESOLVE)


def places_of(saga: SagaClass) -> dict[tuple[str, Part], Place]:
    """Every place of a saga, by step and part."""
    found = [place for step in saga.steps for place in _of_step(step, saga.plan)]
    return {(place.step, place.part): place for place in found}


def _beside(whole: Plan, name: str) -> dict[str, Any]:
    """What is said of a place whose step does not need some others, nor they it."""
    mine, names = whole.following(name), [step.name for step in whole.steps]
    others = tuple(
        each.name for each in whole.steps
        if each.name != name and each.has_body and each.name not in mine and name not in whole.following(each.name)
    )  # fmt: skip
    return {"beside": others, "comes_first": all(names.index(name) < names.index(other) for other in others)}


def _of_step(step: Step[Any, Any], whole: Plan) -> Iterator[Place]:
    name, plan = step.name, whole.by_name[step.name]
    if isinstance(step, Wait) or plan.children is not None:  # what children do is looked at where they are explored
        yield Place(step=name, part=Part.DO, label=name, external=False, waits=True)
        return
    yield Place(
        step=name, part=Part.DO, label=name, external=step.external, asks=step.resolver is not None,
        attempts=plan.retry.max_attempts, is_undone=plan.undo is not None, **_beside(whole, name),
    )  # fmt: skip
    if step.resolver is not None:
        question = _label(step.resolver, f"resolve of {name}")
        yield Place(step=name, part=Part.RESOLVE, label=question, external=True, attempts=plan.retry.max_attempts)
    if step.undo is None or plan.undo is None:
        return
    label, attempts = _label(step.undo.body, f"compensation of {name}"), plan.undo.retry.max_attempts
    asks, external = step.undo.resolver is not None, step.undo.external
    yield Place(step=name, part=Part.UNDO, label=label, external=external, asks=asks, attempts=attempts)
    yield Place(step=name, part=Part.SETTLE, label=label + LAST_LOOK, external=external, attempts=attempts)
    if step.undo.resolver is not None:
        question = _label(step.undo.resolver, f"resolve of {label}")
        yield Place(step=name, part=Part.UNDO_RESOLVE, label=question, external=True, attempts=attempts)


def _label(function: Any, otherwise: str) -> str:
    """The function's name, if it says anything."""
    name: str = getattr(function, "__name__", "_")
    return otherwise if name.strip("_") in ("", "<lambda>") else name
