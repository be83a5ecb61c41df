"""Children: how the store starts them, asks them to turn back, and tells their parent; and what must be true of them.

The first saga of such a world is the parent; the others are the runs of its one child, the last of which counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from sagas.machine import TERMINAL, UNDONE
from sagas.states import Status
from tests.modelcheck.brain import Brain, Outcome
from tests.modelcheck.world import BEGUN, LOCKED, READY, WAITING, World

if TYPE_CHECKING:
    from tests.modelcheck.scenario import Scenario
    from tests.modelcheck.statements import Store

PARENT: Final = 0
LONELY: Final = "a saga has completed, and its child has not"
LEFT: Final = "a saga is undone, and its child is not"
TOO_SOON: Final = "a step is undone while a child that was started after it has not come to its end"
TOO_LATE: Final = "a child is started by a saga that is to turn back"
OUT_OF_ORDER: Final = "a child is undone before a step that came after it"


def status_of(brains: Sequence[Brain], world: World, which: int) -> Status:
    return brains[which].status(world.sagas[which].state)


def latest(world: World) -> int | None:
    """The run of the child that counts."""
    return len(world.sagas) - 1 if len(world.sagas) > 1 else None


def standing(brains: Sequence[Brain], world: World) -> tuple[int, int, int, int]:
    """How many are open, completed, undone and aborted: children.sql."""
    which = latest(world)
    if which is None:
        return (0, 0, 0, 0)
    status = status_of(brains, world, which)
    done = (status is Status.COMPLETED, status in UNDONE, status is Status.ABORTED)
    return (int(not any(done)), *map(int, done))


def called(store: Store, world: World, outcome: Outcome) -> World:
    """What a decision of the parent does about its child: sagas_children_v1."""
    for do, step in outcome.calls:
        which = latest(world)
        status = None if which is None else status_of(store.brains, world, which)
        if do == "start" and (status is None or (status in TERMINAL and status is not Status.COMPLETED)):
            if store.brains[PARENT].turns_back(world.sagas[PARENT].state, step):
                world = world.but(broken=world.broken or TOO_LATE)
            world = store.start(world)
        elif do == "cancel" and which is not None and status not in TERMINAL and store.rules.cancel_reaches_children:
            world = store.request(world, which, "cancel")
        elif do == "undo" and which is not None and status is Status.COMPLETED:
            world = store.request(world, which, "undo_completed")
        elif do == "look":
            world = store.request(world, PARENT, "children", step)
    return world


def told_parent(store: Store, world: World) -> World:
    """A child has come to its end: one row for the parent, unless there is one that nobody has begun."""
    (step,) = (each.name for each in store.brains[PARENT].plan.steps if each.children)
    waiting = [row for row in world.rows if row.kind == "children"]
    if store.rules.begun_look_is_no_telling:
        waiting = [row for row in waiting if row.holder != "worker"]
    if waiting or not store.rules.end_of_a_child_is_told:
        return world
    return store.request(world, PARENT, "children", step)


def at_rest(scenario: Scenario, world: World) -> bool:
    """Whether a parent waits for a child that waits for a person, or for somebody who never comes; and nothing was
    asked for that would end it."""
    which = latest(world) if scenario.store.family else None
    if which is None or any(world.workers) or world.pending:
        return False
    parent = scenario.brains[PARENT].states[world.sagas[PARENT].state]
    asleep = all(row.asleep for row in world.rows)
    parked = scenario.status(world, which) is Status.PARKED
    return asleep and (parked or not (parent.cancel_requested or scenario.status(world, which) in TERMINAL))


def families(scenario: Scenario, world: World) -> Iterator[str]:
    """The rules about children that this world breaks."""
    which, parent = latest(world), scenario.status(world, PARENT)
    plan = scenario.plans[PARENT]
    (step,) = (each.name for each in plan.steps if each.children)
    child = None if which is None else scenario.status(world, which)
    passed = scenario.brains[PARENT].skipped(world.sagas[PARENT].state, step)
    if parent is Status.COMPLETED and child is not Status.COMPLETED and not passed:
        yield LONELY
    if parent in UNDONE and child is not None and child not in UNDONE and child is not Status.ABORTED:
        yield LEFT
    if child is not None and child not in UNDONE and child is not Status.ABORTED:
        before = {each.name for each in plan.steps[: plan.position(step)]}
        for d in (d for holds in world.workers for d in holds):
            acts = d.live and d.phase in (BEGUN, LOCKED, READY, WAITING)
            if acts and d.saga == PARENT and d.direction == "undo" and d.step in before:
                yield TOO_SOON
    if child is Status.COMPENSATING and parent is Status.COMPENSATING:
        after = plan.steps[plan.position(step) + 1 :]
        effects = [world.sagas[PARENT].effect(each.name) for each in after]
        if any(effect.net for effect in effects):
            yield OUT_OF_ORDER
