"""What commands give to programs: the same as the lines for people, as values. No payload is among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sagas import operate
from sagas.desk import Desk, SagaLine
from sagas.engine import SagaRun
from sagas.progress import plan_of, state_of, step_lines
from sagas.why import PauseLine, told, why
from sagas.wording import Wording

FACTS: Final = ("reason", "actor", "error", "unknown", "retry_in", "source", "until")  # of an entry, none is a payload


def listed(desk: Desk, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Sagas, newest first.

    Raises:
        InvalidInput: a status that does not exist, or a limit below 1.
    """
    found = operate.chosen(
        desk, statuses=list(given["status"] or ()), name=given["name"], limit=given["limit"], waiting=given["waiting"]
    )
    pauses = desk.rows("pauses", {})
    return [_saga(each, pauses, desk.words) for each in found]


def _saga(saga: SagaLine, pauses: Sequence[PauseLine], words: Wording) -> dict[str, Any]:
    return {
        "id": saga.id, "name": saga.name, "version": saga.version, "key": saga.key, "status": saga.status,
        "parked_from": saga.parked_from, "paused": saga.paused, "cancel_requested": saga.cancel_requested,
        "created_at": saga.created_at, "deadline": saga.deadline, "error": saga.error,
        "step": operate.current_step(saga, words), "waits": [told(reason, words) for reason in why(saga, pauses)],
    }  # fmt: skip


def stuck(found: Sequence[Any]) -> list[dict[str, Any]]:
    """Sagas that are stuck."""
    return [
        {"id": each.id, "name": each.name, "version": each.version, "key": each.key, "reason": each.reason,
         "since": each.since}
        for each in found
    ]  # fmt: skip


def shown(desk: Desk, wanted: str) -> dict[str, Any]:
    """One saga: where it stands, its steps, its rows in the outbox, its log."""
    run = operate.find(desk, wanted)
    line = desk.saga(run.id)
    return {
        **_saga(line, desk.rows("pauses", {}), desk.words), "run": run.run, "updated_at": run.updated_at,
        "finished_at": run.finished_at, "allowed": _allowed(run), "steps": list(_steps(run, line)),
        "outbox": [
            {"kind": row.kind, "step": row.step, "direction": row.direction, "queue": row.queue, "due_at": row.due_at,
             "holder": row.holder, "deliveries": row.deliveries, "failures": row.failures}
            for row in desk.outbox(run.id)
        ],
        "log": [
            {"seq": entry.seq, "at": entry.at, "kind": entry.kind, "step": entry.step, "attempt": entry.attempt,
             **{name: entry.data[name] for name in FACTS if name in entry.data}}
            for entry in desk.log(run.id)
        ],
    }  # fmt: skip


def _steps(run: SagaRun, line: SagaLine) -> Iterator[dict[str, Any]]:
    plan, state = plan_of(run.name, run.version), state_of(line)
    for each in [] if state is None else step_lines(run.id, plan, state):
        yield {
            "name": each.name, "status": each.state.status.value, "attempts": each.state.do.attempts,
            "undo_attempts": each.state.undo.attempts, "outcome_unknown": each.unknown,
            "next": None if each.next is None else each.next.value, "idempotency_key": each.key,
        }  # fmt: skip


def _allowed(run: SagaRun) -> list[dict[str, Any]]:
    if plan_of(run.name, run.version) is None:
        return []
    return [{"name": each.name, "step": each.step, "does": each.does} for each in run.allowed_actions]


def pauses(desk: Desk) -> list[dict[str, Any]]:
    """Everything that is paused as a whole."""
    return [
        {"kind": each.kind, "name": each.name, "version": each.version or None, "actor": each.actor,
         "reason": each.reason, "at": each.at}
        for each in desk.rows("pauses", {})
    ]  # fmt: skip
