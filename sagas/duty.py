"""What a worker has to know of one work of a definition: found out once, and looked up for every begun row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sagas.definition import Saga
from sagas.events import Direction, Work
from sagas.registry import registry
from sagas.step import Step
from sagas.store.rows import Delivery
from sagas.takeover import has_one_attempt

SagaClass = type[Saga[Any]]

_steps: dict[SagaClass, Mapping[str, Step[Any, Any]]] = {}
_duties: dict[tuple[SagaClass, str, Direction], Duty] = {}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Duty:
    """A step of a saga class in one direction."""

    definition: SagaClass
    step: Step[Any, Any]
    subject: tuple[str, str, str]  # saga name, step, direction: times and counts are kept by it
    label: str  # how named points call it
    external: bool  # it needs no transaction of ours: another system is asked, or nothing but waited for
    awaited: bool  # its function is `async def`
    has_one_attempt: bool  # so that it begins alone
    has_when: bool  # a condition is looked at first
    begets: bool  # other sagas are started or undone
    timeout: float | None  # seconds a body may take; None: the store's setting


def duty_of(delivery: Delivery) -> Duty:
    """What a begun row of a step is about.

    Raises:
        UnknownSaga: this process does not know its saga.
        KeyError: the saga has no such step.
    """
    assert delivery.attempt is not None
    return duty_for(registry.get(delivery.name, delivery.version), delivery.attempt.step, delivery.attempt.direction)


def duty_for(definition: SagaClass, name: str, direction: Direction) -> Duty:
    """The work on a step of this name in one direction.

    Raises:
        KeyError: the saga has no such step.
    """
    found = _duties.get((definition, name, direction))
    if found is None:
        found = _duties[definition, name, direction] = _made(definition, name, direction)
    return found


def _made(definition: SagaClass, name: str, direction: Direction) -> Duty:
    step, plan = steps_of(definition)[name], definition.plan.by_name[name]
    undo = None if direction is Direction.DO else plan.undo
    return Duty(
        definition=definition, step=step, subject=(definition.saga_name, name, direction.value),
        label=f"{name}:{direction}", awaited=is_awaited(step, direction),
        external=plan.external or not plan.has_body if undo is None else undo.external,
        has_when=plan.has_when, begets=plan.children is not None,
        has_one_attempt=has_one_attempt(definition.plan, Work(name, direction)),
        timeout=plan.timeout if undo is None else undo.timeout,
    )  # fmt: skip


def steps_of(definition: SagaClass) -> Mapping[str, Step[Any, Any]]:
    """The declared steps of a saga class by name."""
    found = _steps.get(definition)
    if found is None:
        found = _steps[definition] = {step.name: step for step in definition.steps}
    return found


def is_awaited(step: Step[Any, Any], direction: Direction) -> bool:
    """Whether the function of a step in one direction is `async def`, so that it runs on an event loop."""
    if direction is Direction.DO:
        return step.awaited and step.external
    return step.undo is not None and step.undo.awaited
