"""Writing down what the other side knows, so that steps are settled by it and not done again.

An answer goes into the dedupe table under its key, and the saga's log says that the work is in doubt and why: whoever
begins it finds the answer. Where a saga had turned back in a history that was lost, it is asked to turn back again:
first, so that no answer is taken by a saga that nobody has asked. All of one effect is one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import msgspec
from psycopg.rows import dict_row

from sagas import codec, machine
from sagas.body import step_named
from sagas.errors import SagaError
from sagas.events import Direction, Work
from sagas.failure import clean
from sagas.keys import idempotency_key
from sagas.payloads import Payloads
from sagas.reconcile import Match, Verdict
from sagas.reconcile_lists import Address
from sagas.registry import registry
from sagas.requests import MAX_REASON
from sagas.restored import doubt_work
from sagas.store.rows import Connection, state_of
from sagas_outbox.queries import query, run

PACKAGE: Final = "sagas.store"
NULL: Final = "null"
LIMIT: Final = 1024 * 1024  # bytes of a result
WRITTEN: Final = (Verdict.AHEAD, Verdict.TURNED_BACK)  # in this order: what is known, then what follows
PASSED: Final = "it has passed its pivot, so that it cannot turn back: put one of the two right by hand"


class NotWritten(SagaError):
    """What the other side knows does not fit the saga as it stands."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What became of one match."""

    match: Match
    answered: bool = False  # its answer is in the dedupe table now
    cancel: bool = False  # the saga is asked to turn back
    problem: str = ""  # why nothing was written


def write_down(
    connection: Connection, matches: Sequence[Match], *, payloads: Payloads, actor: str, reason: str
) -> Iterator[Written]:
    """Write down what open sagas have not come to, or have turned back from in a history that was lost.

    Args:
        connection: autocommit.
        matches: what `sagas.reconcile.compare` found.
        payloads: how results are stored.
        actor: who says so; stored in the log.
        reason: why; stored in the log.

    Yields:
        One `Written` for each match that something can be written about.
    """
    turned_back = {m.address.saga_id: m for m in matches if m.verdict is Verdict.TURNED_BACK and m.address}
    asked = set[UUID]()  # to turn back
    for verdict in WRITTEN:
        for match in matches:
            if match.verdict is verdict and match.open and match.address is not None:
                saga_id = match.address.saga_id
                turning = saga_id in asked
                try:
                    with connection.transaction():
                        if saga_id in turned_back and not turning:
                            turning = _ask_to_turn_back(connection, turned_back[saga_id], actor=actor, reason=reason)
                        written = _write(connection, match, match.address, payloads, actor=actor, reason=reason)
                        if written.cancel and not turning:
                            raise NotWritten(PASSED)
                    asked |= {saga_id} if turning else set()
                except (SagaError, KeyError, ValueError, msgspec.MsgspecError) as problem:
                    written = Written(match=match, problem=str(problem))
                yield written


def _write(
    connection: Connection, match: Match, where: Address, payloads: Payloads, *, actor: str, reason: str
) -> Written:
    row = _row(connection, where)
    step_named(registry.get(row["name"], row["version"]), where.step)
    state = state_of(row)
    generation = machine.step_of(state, where.step).generation
    if where.direction == "do" and not machine.goes_forward(state):
        raise NotWritten("it has turned back meanwhile; reconcile it again")
    answer = _answer(row, where, match.effect.result, payloads)
    _remember(connection, match, where, answer)
    said = f"{reason}: {match.effect.key} is known over there"
    said += f" as {match.effect.reference}" if match.effect.reference else ""
    if match.verdict is Verdict.TURNED_BACK:
        key = idempotency_key(where.saga_id, where.step, generation=generation)
        run(connection, query(PACKAGE, "reconcile_closed"), {"key": key, "saga_id": where.saga_id})
    if where.generation == (generation if where.direction == "do" else 0):  # else of a redo, or a last look, to come
        work = Work(where.step, Direction(where.direction))
        doubted = doubt_work(connection, where.saga_id, work, actor=actor, reason=said)
        if doubted.problem:
            raise NotWritten(doubted.problem)
    return Written(match=match, answered=answer is not None, cancel=match.verdict is Verdict.TURNED_BACK)


def _ask_to_turn_back(connection: Connection, match: Match, *, actor: str, reason: str) -> bool:
    """Whether it still can."""
    where = match.address
    assert where is not None
    row = _row(connection, where)
    plan = registry.get(row["name"], row["version"]).plan
    if machine.pivot_passed(plan, state_of(row)):
        return False
    said = clean(f"{reason}: {match.effect.key} was undone in a history that was lost", MAX_REASON)
    request = {
        "id": str(where.saga_id), "kind": "cancel", "queue": plan.steps[0].queue,
        "payload": {"reason": said, "actor": actor},
    }  # fmt: skip
    run(connection, query(PACKAGE, "reconcile_cancel"), {"request": msgspec.json.encode(request).decode()})
    return True


def _row(connection: Connection, where: Address) -> dict[str, Any]:
    found = run(connection, query(PACKAGE, "reconcile_sagas"), {"ids": [where.saga_id]}, row_factory=dict_row)
    return found.fetchone() or {}


def _answer(row: dict[str, Any], where: Address, result: str | None, payloads: Payloads) -> str | None:
    """What the dedupe table is to answer, as it is stored; None: it happened, and nobody says what came of it."""
    if where.effect:  # in a step or in its compensation
        return result if not payloads.seals else None
    if where.direction == "undo":
        return NULL
    step = step_named(registry.get(row["name"], row["version"]), where.step)
    if result is None:
        return NULL if step.result_type in (None, type(None)) else None
    value = codec.decode(result, step.result_type, what=f"result of step {where.step!r}")
    return payloads.store(value, step.result_type, limit=LIMIT, what=f"result of step {where.step!r}").decode()


def _remember(connection: Connection, match: Match, where: Address, answer: str | None) -> None:
    parameters = {
        "key": match.effect.key, "saga_id": where.saga_id, "token": None, "response": answer, "step": where.step,
        "queue": "default",
    }  # fmt: skip
    run(connection, query(PACKAGE, "remember"), parameters)
