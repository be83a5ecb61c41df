"""What commands give to programs: the same as the lines for people, as values. Payloads only to who asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sagas import operate, operate_locks, operate_pauses, operate_payloads, operate_show
from sagas.at_hand import AtHand, at_hand, turned_back_over
from sagas.desk import Desk, SagaLine
from sagas.engine import SagaRun
from sagas.pauses import Scope
from sagas.progress import plan_of, state_of, step_lines
from sagas.why import HeldLine, Reason, told, why
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
    return sagas(desk, found)


def sagas(desk: Desk, found: Sequence[SagaLine]) -> list[dict[str, Any]]:
    """Sagas, each with why it does not go on."""
    pauses, held, parked = desk.rows("pauses", {}), operate.held_by(desk, found), operate.parked_over(desk, found)
    return [of_saga(each, why(each, pauses, held), held, parked.get(each.id, ()), desk.words) for each in found]


def of_saga(
    saga: SagaLine, reasons: Sequence[Reason], held: Sequence[HeldLine], at: Sequence[AtHand], words: Wording
) -> dict[str, Any]:  # fmt: skip
    return {
        "id": saga.id, "name": saga.name, "version": saga.version, "key": saga.key, "status": saga.status,
        "parked_from": saga.parked_from, "paused": saga.paused, "cancel_requested": saga.cancel_requested,
        "created_at": saga.created_at, "deadline": saga.deadline, "error": saga.error,
        "step": operate.current_step(saga, words), "waits": [told(reason, words) for reason in reasons],
        "held_by": [
            {"because": "parked child" if each.kind == "child" else "before it in its line", "step": each.step,
             "id": each.id, "name": each.name, "key": each.key}
            for each in held if each.saga_id == saga.id and each.kind in ("child", "line")
        ],
        "at": [_at_hand(each) for each in at],
    }  # fmt: skip


def _at_hand(found: AtHand) -> dict[str, Any]:
    """What a saga is at, or parked over: what to ask the other side about, and what went wrong last."""
    error = found.error
    return {
        "step": found.step, "direction": found.direction.value,
        "idempotency_keys": {direction.value: key for direction, key in found.keys},
        "error": None if error is None else {
            "type": error.type, "message": error.message, "attempt": error.attempt, "at": error.at,
        },
    }  # fmt: skip


def stuck(found: Sequence[Any]) -> list[dict[str, Any]]:
    """Sagas that are stuck."""
    return [
        {"id": each.id, "name": each.name, "version": each.version, "key": each.key, "reason": each.reason,
         "since": each.since}
        for each in found
    ]  # fmt: skip


def shown(desk: Desk, wanted: str, *, payloads: bool = False) -> dict[str, Any]:
    """One saga: where it stands, its steps, its rows in the outbox, its log; payloads only for who asks for them."""
    run = operate.find(desk, wanted)
    line, outbox, log = desk.saga(run.id), desk.outbox(run.id), desk.log(run.id)
    over = turned_back_over(log)
    held = operate.held_by(desk, [line])
    reasons = why(line, desk.rows("pauses", {}), held)
    return {
        **of_saga(line, reasons, held, at_hand(desk, [line])[run.id], desk.words), "run": run.run,
        "turned_back_over": None if over is None else _at_hand(over),
        "updated_at": run.updated_at, "finished_at": run.finished_at, "allowed": _allowed(run),
        "next": [{"does": each.does, "command": each.command} for each in operate_show.next_for(desk, run, reasons)],
        "steps": list(_steps(run, line)),
        "outbox": [
            {"kind": row.kind, "step": row.step, "direction": row.direction, "queue": row.queue, "due_at": row.due_at,
             "holder": row.holder, "deliveries": row.deliveries, "failures": row.failures}
            for row in outbox
        ],
        "log": [
            {"seq": entry.seq, "at": entry.at, "kind": entry.kind, "step": entry.step, "attempt": entry.attempt,
             **{name: entry.data[name] for name in FACTS if isinstance(entry.data, dict) and name in entry.data}}
            for entry in log
        ],
        **({"payloads": operate_payloads.data(desk, run.id)} if payloads else {}),
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


def asked(found: SagaRun, kind: str, step: str | None) -> dict[str, Any]:
    """What was asked of a saga; it is in the outbox, for a worker to apply."""
    return {
        "request": kind, "saga": found.id, "name": found.name, "key": found.key, "step": step or None,
        "status_before": found.status.value,
    }  # fmt: skip


def paused(scope: Scope, wanted: str, *, now: bool) -> dict[str, Any]:
    """What was paused as a whole, or is not any more."""
    name, version = operate_pauses.named(scope, wanted)
    return {"kind": scope.value, "name": name, "version": version or None, "paused": now}


def locks(desk: Desk, limit: int) -> list[dict[str, Any]]:
    """Semantic locks, and who waits for them."""
    return [
        {"subject": each.subject, "does": operate_locks.told(each), "since": each.at, "step": each.step,
         "saga": each.saga_id, "name": each.name, "key": each.key, "status": each.status}
        for each in operate_locks.lines(desk, limit=limit)
    ]  # fmt: skip
