"""What a worker takes on of the rows it has begun. The others go back, with a reason and a time to come again."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from sagas import clock, family
from sagas.definition import Saga
from sagas.errors import PayloadLocked, UnknownSaga
from sagas.events import Direction
from sagas.failure import clean
from sagas.fitting import misfit
from sagas.lacking import Lacking
from sagas.plan import Plan
from sagas.reader import Probes
from sagas.registry import registry
from sagas.settings import Settings
from sagas.store import large, rows
from sagas.store.rows import Connection, Damaged, Delivery, Kept
from sagas_outbox import claims

log = logging.getLogger("sagas.worker")

REQUEST_DELAY = 0.5  # seconds that work waits for a request of its saga, and a signal for one sent before it
PAUSE_DELAY = 300.0  # seconds until work that is held up is looked at again; a resume makes it due at once
DAMAGED_DELAY = 60.0  # seconds until an unreadable row is looked at again
KEPT_LONGEST = 300.0  # seconds between two looks whether the saga of an early signal exists by now
KEPT_FOR = 30 * 24 * 3600.0  # seconds after which an early signal is given up


def definition_of(delivery: Delivery) -> type[Saga[object]]:
    """The saga class a delivery was started with.

    Raises:
        UnknownSaga: this process does not know it.
    """
    return registry.get(delivery.name, delivery.version)


def receive(
    connection: Connection,
    begun: Sequence[Delivery | Damaged | Kept],
    settings: Settings,
    requests: Collection[str],
    lacking: Lacking,
) -> list[Delivery]:
    """Sort what was begun; returns what is to be worked on.

    Args:
        connection: where it was begun.
        begun: the rows.
        settings: of the store.
        requests: the kinds of requests that this process can apply.
        lacking: keeps and says which versions this worker lacks.
    """
    _put_off_damaged(connection, [each for each in begun if isinstance(each, Damaged)])
    _keep(connection, [each for each in begun if isinstance(each, Kept)])
    probes = (
        large.probes(connection, [each for each in begun if isinstance(each, Delivery) and each.attempt])
        if settings.payloads.seals
        else {}
    )
    good: list[Delivery] = []
    later: dict[float, list[claims.Held]] = {}
    paused: list[claims.Held] = []
    for each in begun:
        if isinstance(each, Delivery):
            each.reader.payloads = settings.payloads
            delay = _delay(each, settings, requests, lacking) or _locked(each, settings, probes.get(each.saga_id, {}))
            if not delay and _is_held_up(each):
                paused.append(each.held)
            elif delay:
                later.setdefault(delay, []).append(each.held)
            else:
                if each.attempt:
                    each.misfit = misfit(definition_of(each), each.reader, each.history, each.state)
                good.append(each)
    lacking.say()
    for delay, held in later.items():
        claims.hand_back(connection, held, delay=delay, now=clock.now())
    if wrong := family.look(connection, [each for each in good if each.kind == "children"], settings):
        claims.hand_back(connection, [each.held for each in wrong], delay=DAMAGED_DELAY, now=clock.now())
        good = [each for each in good if each not in wrong]
    if paused:
        rows.hold_up(connection, paused, delay=PAUSE_DELAY, soon=REQUEST_DELAY, now=clock.now())
    return good


def _is_held_up(delivery: Delivery) -> bool:
    """Whether nothing may begin with it for now: no step, and no more of the items of one. How children stand is looked
    at while it is only their parent itself that is paused: its state says that none may follow them."""
    more = delivery.kind == "children" and not delivery.state.paused
    return delivery.held_up and (delivery.attempt is not None or more)


def _delay(delivery: Delivery, settings: Settings, requests: Collection[str], lacking: Lacking) -> float:
    """Seconds that a row has to wait; 0: it may be worked on."""
    try:
        problem = _misfit(delivery, requests)
    except UnknownSaga as unknown:
        lacking.note(delivery.name, delivery.version, delivery.saga_id, str(unknown))
        return settings.unknown_delay
    if problem:
        log.error("%s: it waits: %s", delivery.label, problem)
        return settings.unknown_delay
    return REQUEST_DELAY if delivery.asked or delivery.early else 0.0


def _locked(delivery: Delivery, settings: Settings, probes: Probes) -> float:
    """Seconds that a row has to wait whose payloads cannot be opened here; nothing of the saga is changed by that."""
    if delivery.attempt is None:  # requests, signals too, are applied without being opened
        return 0.0
    try:
        delivery.reader.check(delivery.history, (delivery.memory.response, delivery.late), probes)
    except PayloadLocked as problem:
        log.error("%s: it waits: %s", delivery.label, problem)
        return settings.unknown_delay
    return 0.0


def _misfit(delivery: Delivery, requests: Collection[str]) -> str:
    """Why this process's code cannot carry out what the row is about; nothing when it can.

    Raises:
        UnknownSaga: it does not have the saga's version.
    """
    if delivery.attempt is None and delivery.kind not in requests:
        return f"this process does not know requests of kind {delivery.kind!r}; is it older than what sent it?"
    if delivery.kind == "abort":  # closing a saga asks nothing of its code
        return ""
    definition = definition_of(delivery)
    if delivery.definition and delivery.definition != definition.fingerprint():
        return (
            f"the steps of {definition.__qualname__} were changed without a new version after this saga had started; "
            f"deploy the former code, and give the changed one version={definition.saga_version + 1}"
        )
    return _lacking(definition.plan, delivery)


def _lacking(plan: Plan, delivery: Delivery) -> str:
    """What the row speaks of and the definition does not have: a row that was damaged, or changed by hand."""
    attempt = delivery.attempt
    for name in (*delivery.state.steps, *([attempt.step] if attempt else ())):
        if name not in plan.by_name:
            return f"its definition has no step {name!r}"
    if attempt and attempt.direction is not Direction.DO and plan.by_name[attempt.step].undo is None:
        return f"its definition has no compensation of step {attempt.step!r}"
    return ""


def _put_off_damaged(connection: Connection, damaged: Iterable[Damaged]) -> None:
    held = []
    for each in damaged:
        log.error("outbox row %d cannot be read, it waits: %s", each.held[0], clean(each.problem, 500))
        held.append(each.held)
    if held:
        claims.hand_back(connection, held, delay=DAMAGED_DELAY, now=clock.now())


def _keep(connection: Connection, kept: Iterable[Kept]) -> None:
    """Signals whose saga does not exist yet look again, less and less often, and are given up in the end."""
    for each in kept:
        if each.age > KEPT_FOR:
            log.error("outbox row %d: no saga came for this signal in 30 days, given up: %s", each.held[0], each.what)
            rows.give_up(connection, each)
        else:
            claims.hand_back(connection, [each.held], delay=min(max(each.age, 1.0), KEPT_LONGEST), now=clock.now())
