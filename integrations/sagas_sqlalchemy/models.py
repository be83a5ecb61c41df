"""The tables as read-only mapped classes on the user's own registry. Only the engine writes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NoReturn
from uuid import UUID

from sqlalchemy import MetaData, Table, event
from sqlalchemy.orm import Mapped, registry

from sagas_sqlalchemy.tables import sagas_tables

INFO: Final = "sagas models"
WRITES: Final = ("before_insert", "before_update", "before_delete")


class SagaRow:
    """One saga."""

    id: Mapped[UUID]
    name: Mapped[str]
    version: Mapped[int]
    key: Mapped[str]
    run: Mapped[int]
    status: Mapped[str]
    seq: Mapped[int]
    input_hash: Mapped[str]
    steps: Mapped[dict[str, Any]]
    cancel_requested: Mapped[bool]
    parked_from: Mapped[str | None]
    parent: Mapped[UUID | None]
    parent_step: Mapped[str | None]
    subject_type: Mapped[str | None]
    subject_id: Mapped[str | None]
    deadline: Mapped[datetime | None]
    paused: Mapped[bool]
    failing: Mapped[bool]
    definition: Mapped[str]
    priority: Mapped[int]
    ordering_key: Mapped[str | None]
    headers: Mapped[dict[str, str]]
    error: Mapped[str]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]

    def __repr__(self) -> str:
        return f"<SagaRow {self.name} {self.key!r}: {self.status}>"


class LogEntry:
    """One line of a saga log."""

    saga_id: Mapped[UUID]
    seq: Mapped[int]
    kind: Mapped[str]
    step: Mapped[str | None]
    attempt: Mapped[int]
    token: Mapped[int | None]
    data: Mapped[dict[str, Any]]
    at: Mapped[datetime]


class OutboxRow:
    """One thing that must be run or delivered, no earlier than `due_at`."""

    id: Mapped[int]
    saga_id: Mapped[UUID | None]
    kind: Mapped[str]
    step: Mapped[str | None]
    direction: Mapped[str | None]
    holder: Mapped[str | None]
    queue: Mapped[str]
    due_at: Mapped[datetime]
    timer_at: Mapped[datetime | None]
    token: Mapped[int]
    publishes: Mapped[int]
    deliveries: Mapped[int]
    failures: Mapped[int]
    first_begun_at: Mapped[datetime | None]
    payload: Mapped[Any]
    progress: Mapped[Any]
    headers: Mapped[Any]


class DedupeRecord:
    """What is known about one effect, by idempotency key."""

    key: Mapped[str]
    saga_id: Mapped[UUID | None]
    state: Mapped[str]
    token: Mapped[int | None]
    fingerprint: Mapped[str | None]
    response: Mapped[Any]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class SagasModels:
    """The mapped classes of one registry."""

    saga: type[SagaRow]
    log: type[LogEntry]
    outbox: type[OutboxRow]
    dedupe: type[DedupeRecord]


def sagas_models(base: Any) -> SagasModels:
    """The classes mapped on a registry, for queries; made when first asked for. The tables are put on its metadata.

    Args:
        base: the declarative base class, or the registry.

    Raises:
        TypeError: later, on flush, if one of their instances is added, changed or deleted.
    """
    on: registry = base if isinstance(base, registry) else base.registry
    by_registry: dict[registry, SagasModels] = on.metadata.info.setdefault(INFO, {})
    if on not in by_registry:
        by_registry[on] = _map(on, on.metadata)
    return by_registry[on]


def _map(on: registry, metadata: MetaData) -> SagasModels:
    tables = sagas_tables(metadata)

    def mapped(described: type[Any], table: Table) -> type[Any]:
        made = type(
            described.__name__, (described,), {"__module__": described.__module__, "__doc__": described.__doc__}
        )
        on.map_imperatively(made, table)
        for write in WRITES:
            event.listen(made, write, _refuse)
        return made

    return SagasModels(
        saga=mapped(SagaRow, tables.saga), log=mapped(LogEntry, tables.log),
        outbox=mapped(OutboxRow, tables.outbox), dedupe=mapped(DedupeRecord, tables.dedupe),
    )  # fmt: skip


def _refuse(_: Any, __: Any, target: object) -> NoReturn:
    raise TypeError(
        f"{type(target).__name__} is read-only: a saga changes through Saga.start(), cancel() and the operator commands"
    )
