"""Where a saga stands, step by step: what its row says, read with the plan it was started with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec

from sagas import machine
from sagas.errors import UnknownSaga
from sagas.events import Direction, Work
from sagas.keys import idempotency_key
from sagas.machine import look
from sagas.plan import Plan, StepPlan
from sagas.registry import registry
from sagas.states import State, Status, StepState

UNREADABLE: Final = "its steps cannot be read"


class SagaColumns(Protocol):
    """A saga row, whoever read it; `steps` as decoded JSON."""

    @property
    def status(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def steps(self) -> Any: ...
    @property
    def cancel_requested(self) -> bool: ...
    @property
    def parked_from(self) -> str | None: ...
    @property
    def error(self) -> str: ...
    @property
    def paused(self) -> bool: ...
    @property
    def failing(self) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class StepLine:
    """One step of one saga."""

    name: str
    plan: StepPlan | None  # None: this process does not know the definition
    state: StepState
    next: Direction | None  # the direction it is to be worked on next
    key: str  # the idempotency key of its attempts

    @property
    def unknown(self) -> bool:
        """Whether nobody knows the outcome of some attempt, in any direction."""
        return self.state.do.unknown or self.state.undo.unknown or self.state.settle.unknown


def plan_of(name: str, version: int) -> Plan | None:
    """The plan of a definition; None when this process does not know it."""
    try:
        return registry.get(name, version).plan
    except UnknownSaga:
        return None


def state_of(saga: SagaColumns) -> State | None:
    """The state that a row holds; None when it cannot be read."""
    try:
        return State(
            status=Status(saga.status), seq=saga.seq, steps=msgspec.convert(saga.steps, dict[str, StepState]),
            cancel_requested=saga.cancel_requested, error=saga.error, paused=saga.paused, failing=saga.failing,
            parked_from=None if saga.parked_from is None else Status(saga.parked_from),
        )  # fmt: skip
    except (ValueError, msgspec.ValidationError):
        return None


def work(plan: Plan, state: State) -> tuple[Work, ...]:
    """What the saga is about to do, or, when it is parked, what it parked over."""
    if state.parked_from is not None:
        state = msgspec.structs.replace(state, status=state.parked_from)
    try:
        return machine.frontier(plan, state)
    except KeyError:  # the row has a step that this definition lacks
        return ()


def to_undo(plan: Plan, state: State) -> tuple[str, ...]:
    """What would be undone if the saga turned back now."""
    try:
        return look.to_undo(plan, state)
    except KeyError:  # as above
        return ()


def step_lines(saga_id: UUID, plan: Plan | None, state: State) -> list[StepLine]:
    """All steps in declared order; without a plan those that were begun, in the order they ended."""
    if plan is None:
        names = sorted(state.steps, key=lambda name: (not state.steps[name].ended, state.steps[name].ended, name))
        ahead: dict[str, Direction] = {}
    else:
        names = [step.name for step in plan.steps] + sorted(state.steps.keys() - plan.by_name.keys())
        ahead = {each.step: each.direction for each in work(plan, state)}
    return [
        StepLine(
            name=name, plan=plan.by_name.get(name) if plan else None, state=found,
            next=ahead.get(name), key=idempotency_key(saga_id, name, generation=found.generation),
        )
        for name, found in ((name, machine.step_of(state, name)) for name in names)
    ]  # fmt: skip
