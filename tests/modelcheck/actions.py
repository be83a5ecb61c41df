"""What may happen next in a world: relay, broker, the network, callers and operators. Workers have a file of their own.

A move is what happened in words, the world after it, and what it takes: nothing (it can always happen), a fault
(of which a run has a bounded number), or somebody who asks for something.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from sagas.machine import TERMINAL
from sagas.states import Status
from tests.modelcheck.bodies import Takes, land
from tests.modelcheck.brain import OPEN
from tests.modelcheck.deciding import ASKED, decisions
from tests.modelcheck.invariants import ACTING
from tests.modelcheck.provider import Effect
from tests.modelcheck.scenario import Late, Scenario
from tests.modelcheck.worker import keeper, locked, worker_moves
from tests.modelcheck.world import UNSURE, WRITTEN, Delivery, Row, World, trimmed, with_worker


class Move(NamedTuple):
    """One step of the world."""

    label: str
    world: World
    free: bool  # no fault, and nobody asked for it


def moves(scenario: Scenario, world: World) -> Iterator[Move]:
    """Everything that may happen next."""
    for label, after, takes in _moves(scenario, world):
        if takes and takes != ASKED:
            if not world.left.faults or takes not in scenario.kinds:
                continue
            after = after.but(left=after.left.but(faults=after.left.faults - 1))
        yield Move(label, tidy(scenario, after), not takes)


def _moves(scenario: Scenario, world: World) -> Iterator[Takes]:
    if scenario.broker:
        yield from _relay(scenario, world)
        yield from _broker(scenario, world)
        yield from _forger(scenario, world)
    else:
        yield from _embedded(scenario, world)
    for who, deliveries in enumerate(world.workers):
        if deliveries:
            yield from worker_moves(scenario, world, who)
    yield from _network(scenario, world)
    yield from _times(scenario, world)
    yield from _people(scenario, world)


def tidy(scenario: Scenario, world: World) -> World:
    """Without log entries that nobody can ask for any more, and without stale messages."""
    sagas = []
    for which, saga in enumerate(world.sagas):
        if saga.log:
            states = scenario.brains[which].states
            held = itertools.chain(world.pending, *world.workers)
            seqs = [states[d.state].seq for d in held if d.saga == which]
            oldest = min(seqs, default=1 << 30)
            saga = saga.but(log=tuple(mark for mark in saga.log if mark.seq > oldest))
        sagas.append(saga)
    return trimmed(world.but(sagas=tuple(sagas)))


# --- relay, broker, and workers that do without them -------------------------------------------------------------


def _due(world: World) -> Iterator[tuple[Row, str]]:
    """Rows that a claim may find, each with the fault it takes."""
    for row in world.rows:
        if locked(world, row):
            continue
        if row.holder == "relay":  # its publish window has passed
            queued = any((row.id, row.token) in message for message in world.messages)
            yield row, "slow broker" if queued else ""
        elif row.asleep:
            continue
        elif not row.holder or row.due or keeper(world, row) is None:
            yield row, ""


def _relay(scenario: Scenario, world: World) -> Iterator[Takes]:
    store = scenario.store
    for row, fault in _due(world):
        name = scenario.name_of(row)
        claimed = store.claim(world, (row,))
        yield f"the relay publishes {name}", _published(claimed, (row,)), fault
        if fault:
            continue
        yield f"the relay claims {name} and dies, or its message is lost", claimed, "loss"
        released = store.release(claimed, row)
        yield f"the broker does not take {name}; the relay releases it", released, "broker down"
        yield (
            f"the relay takes publishing {name} for failed and releases it",
            _published(released, (row,)),
            "broker down",
        )
    if scenario.together:
        alone = scenario.rules.begun_travels_alone
        group = tuple(row for row, fault in _due(world) if not fault and not (alone and row.deliveries))
        if len(group) > 1:
            names = " and ".join(scenario.name_of(row) for row in group)
            yield f"the relay publishes {names} in one message", _published(store.claim(world, group), group), ""


def _published(world: World, rows: tuple[Row, ...]) -> World:
    ids = {row.id for row in rows}
    message = tuple((row.id, row.token) for row in world.rows if row.id in ids)
    return world.but(messages=(*world.messages, message))


def _broker(scenario: Scenario, world: World) -> Iterator[Takes]:
    who = _idle(world)
    for place, message in enumerate(world.messages):
        rest = world.but(messages=world.messages[:place] + world.messages[place + 1 :])
        names = " and ".join(scenario.name_of(row) for row in world.rows if (row.id, row.token) in message)
        yield f"the broker loses the message with {names}", rest, "loss"
        if who is None:
            continue
        begun = scenario.store.begin(rest, who, message, published=True)
        label = f"worker {who + 1} begins {names}" if begun is not rest else f"a message with {names} begins nothing"
        yield label, begun, ""
        yield f"{label}; the acknowledgement is lost", with_worker(begun, who, ()), "lost acknowledgement"
        twice = scenario.store.begin(world, who, message, published=True)
        yield f"{label}; the broker keeps a copy of the message", twice, "duplicate"


def _forger(scenario: Scenario, world: World) -> Iterator[Takes]:
    """A message that no relay sent, with the token guessed right: the worst of its kind."""
    who = _idle(world)
    for row in world.rows if who is not None else ():
        assert who is not None
        begun = scenario.store.begin(world, who, ((row.id, row.token),), published=True)
        if begun is not world:
            yield f"worker {who + 1} begins {scenario.name_of(row)} from a forged message", begun, "forged"


def _embedded(scenario: Scenario, world: World) -> Iterator[Takes]:
    """A worker locks due rows, reads their tokens and begins them, all in one transaction."""
    who = _idle(world)
    for row, fault in _due(world) if who is not None else ():
        assert who is not None
        begun = scenario.store.begin(world, who, ((row.id, row.token),), published=False)
        label = f"worker {who + 1} begins {scenario.name_of(row)}"
        yield label, begun, fault
        yield f"{label}; the acknowledgement is lost", with_worker(begun, who, ()), "lost acknowledgement"


def _idle(world: World) -> int | None:
    return next((who for who, deliveries in enumerate(world.workers) if not deliveries), None)


# --- the network, callers and operators ---------------------------------------------------------------------------


def _network(scenario: Scenario, world: World) -> Iterator[Takes]:
    for place, request in enumerate(world.flight):
        rest = world.but(flight=world.flight[:place] + world.flight[place + 1 :])
        name = scenario.name_of(request)
        yield f"a late request of {name} lands at the provider", land(scenario, rest, request)[0], ""
        if scenario.late is not Late.EVER:  # else: it may be on its way for ever
            yield f"a late request of {name} is lost for good", rest, ""
    for place, d in enumerate(world.pending):
        rest = world.but(pending=world.pending[:place] + world.pending[place + 1 :])
        written = scenario.store.record(rest, d)
        name = f"a record statement about {scenario.name_of(d)}"
        if written is None:
            yield f"{name} finds that something has changed, and writes nothing", rest, ""
        else:
            yield f"{name} is executed", _now_written(written, d), ""


def _times(scenario: Scenario, world: World) -> Iterator[Takes]:
    """What happens to keys and rows while nobody acts."""
    acts = any(d.phase in ACTING and d.direction == "do" for holds in world.workers for d in holds)
    sent = any(request.direction == "do" for request in world.flight)
    if scenario.provider.forgets and not world.clock and not acts and not sent:
        sagas = tuple(saga.but(effects=tuple(map(_forgotten, saga.effects))) for saga in world.sagas)
        yield "`key_ttl` passes; the provider forgets the keys it knew", world.but(clock=1.0, sagas=sagas), "forgotten"
    if world.clock < scenario.latest:
        yield "time passes", world.but(clock=world.clock + 1.0), ""
    if not any(world.workers) and not world.pending:  # for a rebuild the workers are stopped
        for which in range(len(world.sagas)):
            if scenario.status(world, which) in OPEN:
                after = scenario.store.rebuild(world, which)
                yield "the saga's rows are lost, and made again from its log", after, "rows lost"


def _forgotten(named: tuple[str, Effect]) -> tuple[str, Effect]:
    name, effect = named
    return name, effect.but(forgotten=len(effect.stands))


def _now_written(world: World, sent: Delivery) -> World:
    """Its worker does not know, if it is still there; a lease that it wrote is its own."""
    workers = tuple(
        tuple(
            d.but(phase=WRITTEN, live=True) if (d.row, d.token, d.phase) == (sent.row, sent.token, UNSURE) else d
            for d in holds
        )
        for holds in world.workers
    )
    return world.but(workers=workers)


def _people(scenario: Scenario, world: World) -> Iterator[Takes]:
    left, store = world.left, scenario.store
    for which in range(len(world.sagas)):
        pending = {row.kind for row in world.rows if row.saga == which}
        if left.cancels and "cancel" not in pending:
            after = store.request(world, which, "cancel")
            yield "a caller asks to cancel", after.but(left=left.but(cancels=left.cancels - 1)), ASKED
        if left.retries and "retry" not in pending and scenario.status(world, which) is Status.PARKED:
            after = store.request(world, which, "retry")
            yield "an operator asks to retry", after.but(left=left.but(retries=left.retries - 1)), ASKED
        if left.aborts and "abort" not in pending and scenario.status(world, which) is Status.PARKED:
            after = store.request(world, which, "abort")
            yield "an operator asks to abort", after.but(left=left.but(aborts=left.aborts - 1)), ASKED
    yield from _operators(scenario, world)
    yield from decisions(scenario, world)
    yield from _senders(scenario, world)
    if scenario.effects and "release" in scenario.kinds and not world.release:
        yield "a release changes what the step asks for", world.but(release=1), "release"


def _operators(scenario: Scenario, world: World) -> Iterator[Takes]:
    left, store = world.left, scenario.store
    for which in range(len(world.sagas)):
        pending = {row.kind for row in world.rows if row.saga == which}
        if left.pauses and "pause" not in pending and scenario.status(world, which) not in TERMINAL:
            after = store.request(world, which, "pause")
            yield "an operator asks to pause", after.but(left=left.but(pauses=left.pauses - 1)), ASKED
        if scenario.paused(world, which) and "resume" not in pending:
            yield "an operator asks to resume", store.request(world, which, "resume"), ASKED
        if left.redos and "redo" not in pending and scenario.status(world, which) is Status.PARKED:
            for step in scenario.plans[which].steps:
                after = store.request(world, which, "redo", step.name)
                yield f"an operator asks to redo {step.name}", after.but(left=left.but(redos=left.redos - 1)), ASKED


def _senders(scenario: Scenario, world: World) -> Iterator[Takes]:
    left = world.left
    if left.starts:
        yield "a caller starts the saga", scenario.store.start(world).but(left=left.but(starts=0)), ASKED
    if left.signals:
        after = scenario.store.send(world, left.signals[0])
        says = f"somebody sends signal {after.sent} to {left.signals[0]}"
        yield says, after.but(left=left.but(signals=left.signals[1:])), ASKED
