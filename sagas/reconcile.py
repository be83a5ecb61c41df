"""What the other side knows, compared with what the sagas here say: by idempotency key.

For after a restore (see `sagas.restored`), and for any other day on which the books are to agree. A key says which
saga, step and generation an effect is of, and is the same in every history: a saga that does a step again after a
restore, or an operator who asks for the same redo again, uses the same key. So generations may come again; what is
found under one of them is the answer to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import Any, Final
from uuid import UUID

import msgspec
from psycopg.rows import dict_row

from sagas import machine
from sagas.events import Entry, Kind
from sagas.keys import DERIVED
from sagas.reconcile_lists import Address, Effect, address
from sagas.states import State, StepStatus
from sagas.store.rows import Connection, entry_of, state_of
from sagas.verify import snapshot, with_logs
from sagas_outbox.queries import query, run

PACKAGE: Final = "sagas.store"
BATCH: Final = 500
DONE: Final = {"do": Kind.STEP_DONE, "undo": Kind.UNDO_DONE}


class Verdict(StrEnum):
    """How an effect that the other side knows stands here."""

    KNOWN = "known"  # the log, or the dedupe table, has it
    VANISHED = "vanished"  # there is no such saga here
    AWAITED = "awaited"  # nor is this one; but an open saga may start it again as the same one, under the same keys
    AHEAD = "ahead"  # the saga has not come to it, and would do it again under the same key
    TURNED_BACK = "turned back"  # it was undone, and the saga here goes on with it
    BEHIND = "behind"  # the saga has ended without it, or turns back without it
    FORMER = "former"  # of a generation before a redo
    LACKING = "lacking"  # the log says that it was done, and the list lacks it
    PRUNED = "pruned"  # the saga ended long ago, and its log is not here any more
    FOREIGN = "foreign"  # no key of ours
    UNREADABLE = "unreadable"  # the saga is here, and its row or log cannot be read


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """One effect, and how it stands."""

    verdict: Verdict
    label: str  # how messages name the saga
    effect: Effect
    address: Address | None = None
    open: bool = False  # the saga has not ended
    parked: bool = False  # it waits for a person
    undone: bool = False  # the list has the undo of it as well

    @property
    def settled(self) -> bool:
        """Whether nobody has to do anything about it."""
        if self.verdict is Verdict.VANISHED:
            return self.undone
        return self.verdict in (Verdict.KNOWN, Verdict.PRUNED, Verdict.FOREIGN)


@dataclass(slots=True)
class _Here:
    """One saga as it is known here."""

    label: str
    state: State | None = None  # None: there is none
    pruned: bool = False
    awaited: bool = False  # there is none, and another one may start it
    problem: bool = False
    done: set[tuple[str, str, int]] = field(default_factory=set)  # step, direction, generation
    known: Collection[str] = ()  # keys with an answer in the dedupe table


def compare(connection: Connection, effects: Iterable[Effect]) -> Iterator[Match]:
    """Say of each effect how it stands here.

    Args:
        connection: autocommit; may be a replica.
        effects: what the other side knows.

    Yields:
        One `Match` for each effect, those of one saga together.
    """
    by_saga: defaultdict[UUID, list[tuple[Address, Effect]]] = defaultdict(list)
    for effect in effects:
        where = address(effect.key)
        if where is None:
            yield Match(verdict=Verdict.FOREIGN, label="no saga", effect=effect)
        else:
            by_saga[where.saga_id].append((where, effect))
    left = iter(by_saga.items())
    while batch := dict(islice(left, BATCH)):
        here = _look(connection, list(batch))
        for saga_id, found in batch.items():
            yield from _matches(here[saga_id], found)


def lacking(
    connection: Connection, matches: Sequence[Match], *, since: datetime, until: datetime | None
) -> Iterator[Match]:
    """What the logs say was done in a span of time that the list is complete for, and the list lacks.

    Looked at are the steps, and the compensations, that the list knows at all of some saga that is here.

    Args:
        connection: autocommit; may be a replica.
        matches: what `compare` found.
        since: from when on the list is complete.
        until: up to when; None: now.
    """
    named = {match.address.saga_id: match.address for match in matches if match.address}
    names = {row["id"]: row["name"] for row in _rows(connection, list(named)) if row["name"]}
    listed = {(m.address.saga_id, m.address.step, m.address.direction) for m in matches if m.address}
    wanted = {(names[saga_id], step, DONE[direction].value) for saga_id, step, direction in listed if saga_id in names}
    parameters = {
        "names": [name for name, _, _ in wanted], "steps": [step for _, step, _ in wanted],
        "kinds": [kind for _, _, kind in wanted], "since": since, "until": until,
    }  # fmt: skip
    for saga_id, name, key, step, kind, at in run(connection, query(PACKAGE, "reconcile_done"), parameters):
        direction = "do" if kind == Kind.STEP_DONE.value else "undo"
        if (saga_id, step, direction) not in listed:
            where = Address(saga_id, step, "", direction, 0)
            effect = Effect(key=f"{saga_id}:{step}:{direction}:0", at=at.isoformat())
            yield Match(verdict=Verdict.LACKING, label=_label(name, saga_id, key), effect=effect, address=where)


def _rows(connection: Connection, ids: Sequence[UUID]) -> list[dict[str, Any]]:
    found = run(connection, query(PACKAGE, "reconcile_sagas"), {"ids": list(ids)}, row_factory=dict_row)
    return found.fetchall()


def _look(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, _Here]:
    """Each of some sagas as it is known here; rows and logs of one moment."""
    here: dict[UUID, _Here] = {}
    with snapshot(connection):
        rows = _rows(connection, ids)
        pruned = _pruned(connection, [row["id"] for row in rows if row["name"] is None])
        for row, log in with_logs(connection, rows):
            saga_id = row["id"]
            if row["name"] is not None:
                here[saga_id] = _read(row, log)
            elif label := pruned.get(saga_id):
                here[saga_id] = _Here(label=label, pruned=True)
            else:
                here[saga_id] = _Here(label=_vanished(saga_id), awaited=row["awaited"])
    return here


def _pruned(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, str]:
    """What to call those of some sagas that were pruned."""
    if not ids:
        return {}
    found = run(connection, query(PACKAGE, "reconcile_pruned"), {"ids": list(ids)}).fetchall()
    return {saga_id: _label(name, saga_id, key) for saga_id, name, key in found}


def _read(row: dict[str, Any], log: Sequence[tuple[Any, ...]]) -> _Here:
    label = _label(row["name"], row["id"], row["key"])
    try:
        done = set(_done(entry_of(*line) for line in log))
        return _Here(label=label, state=state_of(row), done=done, known=frozenset(row["known"]))
    except (ValueError, msgspec.MsgspecError):
        return _Here(label=label, problem=True)


def _label(name: str, saga_id: UUID, key: str) -> str:
    return f"saga {name} {saga_id} (key {key!r})"


def _vanished(saga_id: UUID) -> str:
    """All that is left of it is its id, the first part of which is a time: its own, or that of what it came of."""
    if saga_id.version not in (7, DERIVED):
        return f"saga {saga_id}"
    made = datetime.fromtimestamp((saga_id.int >> 80) / 1000, UTC).isoformat(sep=" ", timespec="seconds")
    return f"saga {saga_id} of {made}" if saga_id.version == 7 else f"saga {saga_id}, which came of one of {made}"


def _done(entries: Iterable[Entry]) -> Iterator[tuple[str, str, int]]:
    """What a log says was done outside: step, direction and generation of its key."""
    generations: defaultdict[str, int] = defaultdict(int)
    settled: defaultdict[str, int] = defaultdict(int)
    for entry in entries:
        step = entry.step or ""
        if entry.kind is Kind.REDONE and not entry.data.ignored:
            generations[step] += 1
        elif entry.kind is Kind.STEP_DONE:
            yield step, "do", generations[step]
        elif entry.kind is Kind.UNDO_DONE:
            yield step, "undo", 0
        elif entry.kind is Kind.SETTLE_DONE:
            settled[step] += 1
            yield step, "undo", settled[step]


def _matches(here: _Here, found: Sequence[tuple[Address, Effect]]) -> Iterator[Match]:
    undone = set(_undone([where for where, _ in found]))
    for where, effect in found:
        yield Match(
            verdict=_verdict(here, where, effect), label=here.label, effect=effect, address=where,
            open=here.state is not None and not machine.finished(here.state), undone=where in undone,
            parked=here.state is not None and machine.parked(here.state),
        )  # fmt: skip


def _undone(listed: Collection[Address]) -> Iterator[Address]:
    """What the list has the undo of as well, which is of the latest generation of a step, or of an effect; and those
    undos."""
    latest: dict[tuple[str, str], Address] = {}
    for where in sorted(listed, key=lambda where: where.generation):
        if where.direction == "do":
            latest[where.step, where.effect] = where
    for where in listed:
        if where.direction == "undo":
            yield where
            if found := latest.get((where.step, where.effect)):
                yield found


def _verdict(here: _Here, where: Address, effect: Effect) -> Verdict:
    if here.problem:
        return Verdict.UNREADABLE
    if here.state is None:
        missing = Verdict.AWAITED if here.awaited else Verdict.VANISHED
        return Verdict.PRUNED if here.pruned else missing
    if (where.step, where.direction, where.generation) in here.done:
        return Verdict.KNOWN
    answered = effect.key in here.known  # in the dedupe table only: what becomes of it the saga decides
    if where.direction == "undo":
        return _undo_verdict(here.state, answered)
    return _do_verdict(here.state, where, answered)


def _do_verdict(state: State, where: Address, answered: bool) -> Verdict:
    step = machine.step_of(state, where.step)
    if where.generation < step.generation:
        return Verdict.FORMER
    if machine.goes_forward(state):
        return Verdict.KNOWN if answered else Verdict.AHEAD
    undone = step.status is StepStatus.UNDONE or (answered and step.settled > 0)  # not as one that is done by the log
    coming = step.status is StepStatus.UNKNOWN or (answered and step.unsettled)
    return Verdict.KNOWN if undone or (coming and not machine.finished(state)) else Verdict.BEHIND


def _undo_verdict(state: State, answered: bool) -> Verdict:
    if machine.going_on(state):
        return Verdict.TURNED_BACK  # also when its answer is here: nothing says that the saga will come to it
    if answered:
        return Verdict.KNOWN
    return Verdict.BEHIND if machine.finished(state) else Verdict.AHEAD
