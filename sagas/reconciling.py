"""Writing down what the other side knows, so that steps are settled by it and not done again.

An answer goes into the dedupe table under its key, and the saga's log says that the work is in doubt and why: whoever
begins it finds the answer. Where a saga had turned back in a history that was lost, it is asked to turn back again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from psycopg.rows import dict_row

from sagas import codec, machine
from sagas.body import step_named
from sagas.errors import SagaError
from sagas.events import Direction, Work
from sagas.keys import idempotency_key
from sagas.payloads import Payloads
from sagas.reconcile import Match, Verdict
from sagas.reconcile_lists import Address
from sagas.registry import registry
from sagas.restored import doubt_work
from sagas.store.rows import Connection, state_of
from sagas_outbox.queries import query, run

PACKAGE: Final = "sagas.store"
NULL: Final = "null"
LIMIT: Final = 1024 * 1024  # bytes of a result
FOR_DIRECTION: Final = (Verdict.AHEAD, Verdict.TURNED_BACK)  # in this order: what is known, then what follows


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What became of one match."""

    match: Match
    answered: bool = False  # its answer is in the dedupe table now
    cancel: bool = False  # the saga is to be asked to turn back
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
    for verdict in FOR_DIRECTION:
        for match in matches:
            if match.verdict is verdict and match.open and match.address is not None:
                try:
                    with connection.transaction():
                        written = _write(connection, match, match.address, payloads, actor=actor, reason=reason)
                except (SagaError, KeyError, ValueError, msgspec.MsgspecError) as problem:
                    written = Written(match=match, problem=str(problem))
                yield written


def _write(
    connection: Connection, match: Match, where: Address, payloads: Payloads, *, actor: str, reason: str
) -> Written:
    row = _row(connection, where)
    generation = machine.step_of(state_of(row), where.step).generation
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
            return Written(match=match, problem=doubted.problem)
    return Written(match=match, answered=answer is not None, cancel=match.verdict is Verdict.TURNED_BACK)


def _row(connection: Connection, where: Address) -> dict[str, Any]:
    found = run(connection, query(PACKAGE, "reconcile_sagas"), {"ids": [where.saga_id]}, row_factory=dict_row)
    return found.fetchone() or {}


def _answer(row: dict[str, Any], where: Address, result: str | None, payloads: Payloads) -> str | None:
    """What the dedupe table is to answer, as it is stored; None: it happened, and nobody says what came of it."""
    if where.direction == "undo":
        return NULL
    if where.effect:
        return result if not payloads.seals else None
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
