"""What must be true of every world, and of every one in which a saga has ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sagas.machine import UNDONE
from sagas.states import Status
from tests.modelcheck.brain import OPEN
from tests.modelcheck.scenario import Scenario
from tests.modelcheck.world import BEGUN, LOCKED, READY, WAITING, Delivery, World, held

ACTING: Final = (BEGUN, LOCKED, READY, WAITING)  # the body has not come to an end
TWICE: Final = "completed, and an effect did not happen exactly once"
NET: Final = "undone, and an effect stands"
BLAMED: Final = "a saga parked whose own body never killed a worker"


def broken(scenario: Scenario, world: World) -> Iterator[str]:
    """The rules that this world breaks."""
    if world.broken:
        yield world.broken
    deliveries = [d for holds in world.workers for d in holds]
    yield from _owners(world, deliveries)
    yield from _compensations(deliveries)
    for which in range(len(world.sagas)):
        yield from _saga(scenario, world, which)


def _owners(world: World, deliveries: list[Delivery]) -> Iterator[str]:
    owned = [d.row for d in deliveries if held(world, d)]
    if len(owned) != len(set(owned)):
        yield "two workers own one row"
    leased = [d.row for d in deliveries if d.live and d.phase in ACTING]
    if len(leased) != len(set(leased)):
        yield "two workers act on one row, each with a lease that has not ended"


def _compensations(deliveries: list[Delivery]) -> Iterator[str]:
    undone = {(d.saga, d.step) for d in deliveries if d.direction in ("undo", "settle")}
    for d in deliveries:
        if d.live and d.phase in ACTING and d.direction == "do" and (d.saga, d.step) in undone:
            yield "a compensation was begun while an attempt of its step has a live lease"


def _saga(scenario: Scenario, world: World, which: int) -> Iterator[str]:
    saga, brain = world.sagas[which], scenario.brains[which]
    status = brain.status(saga.state)
    rows = tuple((row.step, row.direction) for row in world.rows if row.saga == which and row.kind == "step")
    if (status in OPEN) != bool(rows):
        yield f"a saga that is {status} owns {len(rows)} rows"
    elif rows != brain.works(saga.state):
        yield "the outbox row is not for the work that is next"
    effects = {step.name: saga.effect(step.name) for step in brain.plan.steps}
    if status is Status.COMPLETED and any(effect.stands != (True,) for effect in effects.values()):
        yield TWICE
    if status in UNDONE and any(effect.net and not _told(world, which, name) for name, effect in effects.items()):
        yield NET
    budgets = 1 + scenario.retries - world.left.retries + scenario.cancels - world.left.cancels
    for step in brain.plan.steps:
        if step.external and effects[step.name].bodies > step.retry.max_attempts * budgets:
            yield "more bodies were begun than max_attempts allows"
    if status is Status.PARKED and scenario.deadly and scenario.deadly not in effects:
        yield BLAMED


def _told(world: World, which: int, step: str) -> bool:
    """Whether an answer of this step is on its way to the saga, which it will reopen."""
    late = any((row.saga, row.kind, row.step) == (which, "late_answer", step) for row in world.rows)
    about = (d for holds in world.workers for d in holds if (d.saga, d.step, d.direction) == (which, step, "do"))
    return late or any(d.phase not in (BEGUN, READY, WAITING) and d.call[0] == "succeeded" for d in about)
