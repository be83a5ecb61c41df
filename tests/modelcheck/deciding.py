"""What an operator may say of a step over which a saga parked: what they can see of it at the provider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sagas.events import Direction
from sagas.machine.look import parked_work
from sagas.states import Status
from tests.modelcheck import provider
from tests.modelcheck.bodies import Takes
from tests.modelcheck.provider import Effect
from tests.modelcheck.scenario import Scenario
from tests.modelcheck.telling import WORDS, quiet
from tests.modelcheck.world import Saga, World, with_saga

ASKED: Final = "asked"  # what a move takes that a person makes


def decisions(scenario: Scenario, world: World) -> Iterator[Takes]:
    """An operator looks at what happened, decides, and says so; by hand they undo what they say is undone."""
    for which in range(len(world.sagas)):
        asked = {row.kind for row in world.rows if row.saga == which}
        if not world.left.resolves or asked.intersection(WORDS) or scenario.status(world, which) is not Status.PARKED:
            continue
        plan, state = scenario.plans[which], scenario.brains[which].states[world.sagas[which].state]
        for work in parked_work(plan, state):
            for kind, result, before in _words(scenario, world, which, work.step, work.direction):
                said = (result, state.seq)
                after = scenario.store.request(before, which, kind, work.step, said)
                left = after.left.but(resolves=after.left.resolves - 1)
                yield f"an operator says of {work.step}: {kind.replace('_', ' ')}", after.but(left=left), ASKED


def _words(
    scenario: Scenario, world: World, which: int, step: str, direction: Direction
) -> Iterator[tuple[str, int, World]]:
    saga = world.sagas[which]
    names = scenario.effects_of(step, scenario.brains[which].generation(saga.state, step))
    effects, sure = [saga.effect(name) for name in names], quiet(world, which, step, step in scenario.effects)
    if direction is not Direction.DO:
        yield "mark_undone", 0, with_saga(world, which, _by_hand(world.sagas[which], names))
        return
    if all(effect.stands == (True,) for effect in effects) and (sure or scenario.provider.keys):
        yield "mark_done", provider.together([0] * len(effects)) if len(effects) > 1 else 0, world
    if sure and not any(effect.net for effect in effects):
        yield "mark_not_done", 0, world
        if not scenario.plans[which].by_name[step].pivot:
            yield "skip", 0, world


def _by_hand(saga: Saga, names: tuple[str, ...]) -> Saga:
    for name in names:
        effect: Effect = saga.effect(name)
        saga = saga.with_effect(name, effect.but(stands=tuple(False for _ in effect.stands)))
    return saga
