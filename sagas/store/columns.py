"""Decisions as the parameters of a record statement: a list for each column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from sagas.keys import idempotency_key
from sagas.states import Status
from sagas.store.starting import started

if TYPE_CHECKING:
    from sagas.store.rows import Recording

Columns = dict[str, list[Any]]


def plain(batch: Sequence[Recording]) -> Columns:
    """What every decision says, and its log entries."""
    states = [r.decision.state for r in batch]
    rows = [r.decision.rows[0] if r.decision.rows and r.delivery.attempt else None for r in batch]
    columns: Columns = {
        "ids": [r.delivery.id for r in batch],
        "tokens": [r.delivery.token for r in batch],
        "saga_ids": [r.delivery.saga_id for r in batch],
        "seqs": [r.delivery.state.seq for r in batch],
        "new_seqs": [state.seq for state in states],
        "statuses": [state.status for state in states],
        "steps": [state.steps for state in states],
        "finished": [r.finished for r in batch],
        "keeps": [row is not None for row in rows],
        "row_steps": [row and row.step for row in rows],
        "directions": [row and row.direction for row in rows],
        "queues": [row and row.queue for row in rows],
        "delays": [row.delay if row else 0 for row in rows],
        "goes_on": [r.goes_on for r in batch],
    }
    return columns | _log_columns(batch)


def rare(batch: Sequence[Recording]) -> Columns:
    """What few decisions say: all of it empty for plain steps."""
    columns: Columns = {
        "unusual": [said for r in batch if (said := _unusual(r)) != Unusual(r.delivery.id)],
        "freeing": [r.delivery.id for r in batch if r.finished and (r.frees or r.delivery.attempt is None)],
    }
    return columns | _new_row_columns(batch) | _surplus_columns(batch) | _mark_columns(batch) | started(batch)


class Unusual(msgspec.Struct, omit_defaults=True):
    """What few decisions say, by column."""

    id: int  # of the row
    cancel: bool = False
    parked_from: Status | None = None
    error: str = ""
    paused: bool = False
    failing: bool = False
    spare: bool = False
    wake: bool = False
    failures: int = 0
    first_begun: float | None = None
    priority: int = 0


def _unusual(r: Recording) -> Unusual:
    state, row = r.decision.state, r.decision.rows[0] if r.decision.rows and r.delivery.attempt else None
    return Unusual(
        r.delivery.id, state.cancel_requested, state.parked_from, state.error, state.paused, state.failing,
        r.decision.spare, r.decision.wake or bool(r.decision.surplus),
        *(() if row is None else (row.failures, row.first_begun_at, row.priority)),
    )  # fmt: skip


def _log_columns(batch: Sequence[Recording]) -> Columns:
    lines = [(r.delivery.id, entry) for r in batch for entry in r.decision.entries]
    return {
        "log_ids": [id for id, _ in lines],
        "log_seqs": [entry.seq for _, entry in lines],
        "log_kinds": [entry.kind for _, entry in lines],
        "log_steps": [entry.step for _, entry in lines],
        "log_attempts": [entry.attempt for _, entry in lines],
        "log_data": [entry.data for _, entry in lines],
    }


def _new_row_columns(batch: Sequence[Recording]) -> Columns:
    """Rows beyond the one that is kept: all of them for a request, whose own row goes."""
    added = [(r.delivery.id, row) for r in batch for row in r.decision.rows[1 if r.delivery.attempt else 0 :]]
    return {
        "new_ids": [id for id, _ in added],
        "new_steps": [row.step for _, row in added],
        "new_directions": [row.direction for _, row in added],
        "new_queues": [row.queue for _, row in added],
        "new_delays": [row.delay for _, row in added],
        "new_failures": [row.failures for _, row in added],
        "new_first_begun": [row.first_begun_at for _, row in added],
        "new_priorities": [row.priority for _, row in added],
    }


def _surplus_columns(batch: Sequence[Recording]) -> Columns:
    lines = [(r.delivery.id, work) for r in batch for work in r.decision.surplus]
    return {
        "surplus_ids": [id for id, _ in lines],
        "surplus_steps": [work.step for _, work in lines],
        "surplus_directions": [work.direction for _, work in lines],
    }


def _mark_columns(batch: Sequence[Recording]) -> Columns:
    marks = [(r.delivery, mark) for r in batch for mark in r.decision.marks]
    return {
        "mark_ids": [delivery.id for delivery, _ in marks],
        "mark_keys": [idempotency_key(delivery.saga_id, mark.step, "do", mark.generation) for delivery, mark in marks],
        "mark_states": [mark.state for _, mark in marks],
    }
