"""What must be true of every world, and of every one in which a saga has ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sagas.machine import UNDONE
from sagas.states import Status
from tests.modelcheck.brain import OPEN
from tests.modelcheck.family import families
from tests.modelcheck.provider import Effect
from tests.modelcheck.scenario import Scenario
from tests.modelcheck.world import BEGUN, LOCKED, READY, TOLD, WAITING, Delivery, World, held

ACTING: Final = (BEGUN, LOCKED, READY, WAITING, TOLD)  # the body has not come to an end
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
    yield from _signals(scenario, world)
    if scenario.store.family:
        yield from families(scenario, world)
        return
    if len(world.sagas) > len(scenario.started) + sum(saga.continued for saga in world.sagas) + int(scenario.unstarted):
        yield "a run was started that no run goes on to"
    if scenario.runs and len(world.sagas) < 1 + sum(saga.continued for saga in world.sagas):
        yield "a run has ended to go on, and the next one was not started"
    for which, saga in enumerate(world.sagas):
        more = scenario.runs and which + 1 < len(scenario.brains)
        if more and scenario.status(world, which) is Status.COMPLETED and not saga.continued:
            yield "a run that was to go on has completed, and no other goes on"


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
    works = brain.works(saga.state)
    if sorted(row for row in rows if row in works) != sorted(works):
        yield f"a saga that is {status} has not a row for each of its works: {rows} for {works}"
    elif len(rows) > len(works) and not scenario.may_leave_rows:  # else whoever holds or begins one drops it
        yield "an outbox row is not for work that is next"
    effects = {step.name: _effects(scenario, world, which, step.name) for step in brain.plan.steps if step.has_body}
    if status is Status.COMPLETED and not saga.mistaken:
        for name, each in effects.items():
            wanted = () if brain.skipped(saga.state, name) else (True,)
            if any(effect.stands != wanted for effect in each):
                yield TWICE
    undone = status in UNDONE and not saga.mistaken
    if undone and any(_net(each) and not _told(world, which, name) for name, each in effects.items()):
        yield NET
    lost = scenario.faults - world.left.faults if "rows lost" in scenario.kinds else 0  # rebuild forgets begins
    budgets = 1 + lost + scenario.retries - world.left.retries + scenario.cancels - world.left.cancels
    for step in brain.plan.steps:
        if step.external and saga.effect(step.name).bodies > step.retry.max_attempts * budgets:
            yield "more bodies were begun than max_attempts allows"
    if status is Status.PARKED and scenario.deadly and scenario.deadly not in effects:
        yield BLAMED


def _effects(scenario: Scenario, world: World, which: int, step: str) -> list[Effect]:
    """The effects of a step: under its present key, and under former ones that an operator could be sure about."""
    saga, present = world.sagas[which], scenario.brains[which].generation(world.sagas[which].state, step)
    found = [saga.effect(name) for name in scenario.effects_of(step, present)]
    for former in range(present if scenario.blind or step in saga.sure else 0):
        before = [saga.effect(name) for name in scenario.effects_of(step, former)]
        found = [now.but(stands=(*now.stands, *then.stands)) for now, then in zip(found, before, strict=True)]
    return found


def _signals(scenario: Scenario, world: World) -> Iterator[str]:
    taken = [number for saga in world.sagas for number in saga.taken]
    if len(taken) != len(set(taken)):
        yield "a signal was taken twice"
    known = {*world.dropped, *taken, *(row.number for row in world.rows if row.kind == "signal")}
    for which, saga in enumerate(world.sagas):
        known.update(saga.noted)
        if not saga.continued:
            there = scenario.brains[which].signals(saga.state)
            known.update(number for seq, number in saga.heard if seq in there)
    if any(number not in known for number in range(1, world.sent + 1)):
        yield "a signal that was sent has vanished"
    if world.dropped and world.sagas and scenario.status(world, len(world.sagas) - 1) in (*OPEN, Status.PARKED):
        yield "a signal was dropped, although its saga goes on"


def _net(effects: list[Effect]) -> int:
    return sum(effect.net for effect in effects)


def _told(world: World, which: int, step: str) -> bool:
    """Whether an answer of this step is on its way to the saga, which it will reopen."""
    late = any((row.saga, row.kind, row.step) == (which, "late_answer", step) for row in world.rows)
    about = [d for holds in world.workers for d in holds if (d.saga, d.step, d.direction) == (which, step, "do")]
    heard = any(d.phase not in (BEGUN, READY, WAITING) and d.call[0] in ("succeeded", "unstorable") for d in about)
    return late or heard or any(d.phase == TOLD for d in about)
