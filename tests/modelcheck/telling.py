"""What a record says about signals, times, conditions and runs, kept for the invariants; it decides nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tests.modelcheck.brain import Brain, Outcome, named
from tests.modelcheck.world import BEGUN, READY, WAITING, Delivery, Saga, World

WORDS: Final = ("mark_done", "mark_not_done", "skip", "mark_undone")  # of an operator about a step
EARLY: Final = "a wait has ended before its time, without its signal"
DISORDER: Final = "a signal is in the log before one that was sent earlier"
MISSED: Final = "a wait times out, although its signal had been sent before"
OVERTAKEN: Final = "a step that had begun was skipped"


def waits_for(world: World, step: str) -> bool:
    """Whether a signal to this wait is on its way."""
    return any((row.kind, row.step) == ("signal", step) for row in world.rows)


def told(brain: Brain, world: World, d: Delivery, outcome: Outcome) -> str:
    """The rule that a decision breaks when it is written now."""
    if d.call[0] == "timed_out" or d.call[:2] == ("succeeded", "timer"):
        until = brain.until(d.state, d.step)
        if outcome.entries and (until is None or world.clock < until):
            return EARLY
    if outcome.heard is not None and any(d.number < number for _, number in world.sagas[d.saga].heard):
        return DISORDER
    begun = (name for name in outcome.skipped if d.kind == "step" and world.sagas[d.saga].effect(name).bodies)
    return OVERTAKEN if any(begun) else ""


def kept(brain: Brain, world: World, saga: Saga, d: Delivery, outcome: Outcome, guarded: Collection[str]) -> Saga:
    """A saga with what was written about it."""
    if outcome.heard is not None:
        saga = saga.but(heard=(*saga.heard, (outcome.heard, d.number)))
    if outcome.noted:
        saga = saga.but(noted=(*saga.noted, d.number))
    if outcome.took:
        numbers = dict(saga.heard)
        saga = saga.but(taken=(*saga.taken, *(numbers[seq] for seq in outcome.took)))
    for step in outcome.redone:
        name = named(step, brain.generation(d.state, step))
        saga = saga.with_effect(name, saga.effect(name).but(retired=True))
        if _sure(world, saga, d.saga, step, brain.generation(d.state, step), guarded):
            saga = saga.but(sure=(*saga.sure, step))
    if d.kind in WORDS and outcome.entries and _mistaken(brain, world, saga, d, guarded):
        saga = saga.but(mistaken=True)
    return saga.but(continued=True) if outcome.next else saga


def _mistaken(brain: Brain, world: World, saga: Saga, d: Delivery, guarded: Collection[str]) -> bool:
    """Whether what an operator says has changed since they looked, and nothing in the saga shows it: a worker that was
    taken for dead had its effect in between, or is about to. Where the saga has moved on they are not to blame."""
    if d.call[3] != brain.states[d.state].seq or d.kind not in ("mark_not_done", "skip"):
        return False
    return not _sure(world, saga, d.saga, d.step, brain.generation(d.state, d.step), guarded)


def _sure(world: World, saga: Saga, which: int, step: str, generation: int, guarded: Collection[str]) -> bool:
    """Whether nothing has happened under the key that is given up, and nothing will: what an operator answers for.

    Of a step that guards its effects, one whose worker has not asked for it yet will not: the redo closes the key.
    """
    suffix = named("", generation)
    mine = [effect for name, effect in saga.effects if name.split("/")[0].removesuffix(suffix) == step]
    return quiet(world, which, step, step in guarded) and not any(any(effect.stands) for effect in mine)


def quiet(world: World, which: int, step: str, guarded: bool) -> bool:
    """Whether no request of a step is on its way, or about to be sent by a worker that is still alive."""
    acting = (WAITING,) if guarded else (BEGUN, READY, WAITING)
    sent = any((each.saga, each.step, each.direction) == (which, step, "do") for each in world.flight)
    return not sent and not any(
        (d.saga, d.step, d.direction) == (which, step, "do") and d.phase in acting
        for holds in world.workers
        for d in holds
    )
