"""The tables on the user's own `MetaData`: what the numbered SQL files create, described.

`metadata.create_all()` makes the whole of it, functions and trigger included; migrations go through
`sagas_sqlalchemy.alembic`. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    DateTime,
    Double,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.sql.elements import conv

from sagas.asked import REQUESTS
from sagas.errors import ConfigurationError
from sagas.events import Direction, Kind
from sagas.machine import DIRECTION, TERMINAL
from sagas.states import Status
from sagas.store.schema_files import NAMES
from sagas_outbox.encoding import briefly
from sagas_sqlalchemy import ddl
from sagas_sqlalchemy.message_tables import inbox, message
from sagas_sqlalchemy.queue_tables import queue, slot

NOW: Final = text("clock_timestamp()")
EMPTY: Final = text("'{}'")
ZERO: Final = text("0")
INFO: Final = "sagas"  # where the tables are kept on a MetaData, and what marks them as ours

# SQLAlchemy 2.0 has no word for storage options.
HOT: Final[dict[str, float]] = {  # small and hot: vacuumed often, and without a pause
    "fillfactor": 60,
    "autovacuum_vacuum_scale_factor": 0.02, "autovacuum_vacuum_threshold": 2000, "autovacuum_vacuum_cost_delay": 0,
    "autovacuum_analyze_scale_factor": 0.2, "autovacuum_analyze_threshold": 2000,
}  # fmt: skip
STORAGE: Final[dict[str, dict[str, float]]] = {
    "sagas_saga": {"fillfactor": 60}, "sagas_outbox": HOT, "sagas_message": HOT, "sagas_tally": {"fillfactor": 50},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class SagasTables:
    """The tables on one `MetaData`."""

    saga: Table
    log: Table
    outbox: Table
    dedupe: Table
    signal: Table
    pause: Table
    queue: Table
    slot: Table
    pace: Table
    process: Table
    lock: Table
    tombstone: Table
    archive: Table
    tally: Table
    schedule: Table
    message: Table
    inbox: Table
    schema_version: Table
    schema: str | None  # where they are; None: wherever `search_path` leads

    @property
    def names(self) -> tuple[str, ...]:
        """What the tables are called, without their schema."""
        all_fields = (getattr(self, field.name) for field in fields(self))
        return tuple(each.name for each in all_fields if isinstance(each, Table))


def sagas_tables(metadata: MetaData, *, schema: str | None = None) -> SagasTables:
    """Put the tables on a `MetaData`; asked again, give the same ones.

    Args:
        metadata: the user's own, such as `Base.metadata`.
        schema: the database schema to keep them in; None: the metadata's own, or wherever `search_path` leads. What the
            first call said holds.

    Raises:
        ConfigurationError: it is no `MetaData`, or they are on it already, in another schema.
    """
    if not isinstance(metadata, MetaData):
        raise ConfigurationError(f"metadata={briefly(metadata)}: a MetaData{_of_base(metadata)}")
    known: SagasTables | None = metadata.info.get(INFO)
    if known is None:
        known = metadata.info[INFO] = _make(metadata, schema or metadata.schema)
    elif schema is not None and known.schema != schema:
        raise ConfigurationError(
            f"the tables of sagas are on this metadata already, in schema {known.schema!r}, not {schema!r}: say "
            f"schema= in the first call too, or use another MetaData"
        )
    return known


def _of_base(given: Any) -> str:
    """What to write instead of a declarative base."""
    if not isinstance(getattr(given, "metadata", None), MetaData):
        return ", such as Base.metadata"
    return f"; pass {getattr(given, '__name__', 'its')}.metadata"


def _make(metadata: MetaData, schema: str | None) -> SagasTables:
    table = partial(Table, schema=schema, info={INFO: True})
    found = SagasTables(
        saga=table("sagas_saga", metadata, *_saga()),
        log=table("sagas_log", metadata, *_log()),
        outbox=table("sagas_outbox", metadata, *_outbox()),
        dedupe=table("sagas_dedupe", metadata, *_dedupe()),
        signal=table("sagas_signal", metadata, *_signal()),
        pause=table("sagas_pause", metadata, *_pause()),
        queue=table("sagas_queue", metadata, *queue()),
        slot=table("sagas_slot", metadata, *slot()),
        pace=table("sagas_pace", metadata, *_pace()),
        process=table("sagas_process", metadata, *_process()),
        lock=table("sagas_lock", metadata, *_lock()),
        tombstone=table("sagas_tombstone", metadata, *_tombstone()),
        archive=table("sagas_archive", metadata, *_archive()),
        tally=table("sagas_tally", metadata, *_tally()),
        schedule=table("sagas_schedule", metadata, *_schedule()),
        message=table("sagas_message", metadata, *message()),
        inbox=table("sagas_inbox", metadata, *inbox()),
        schema_version=table("sagas_schema", metadata, *_schema()),
        schema=schema,
    )
    for other in (getattr(found, field.name) for field in fields(found)):
        if isinstance(other, Table) and other is not found.schema_version:
            found.schema_version.add_is_dependent_on(other)  # created last, when functions can be added
    event.listen(found.saga, "before_create", _before_create)
    for stored in (found.saga, found.outbox, found.message, found.tally):
        event.listen(stored, "after_create", _set_storage)
    event.listen(found.schema_version, "after_create", _after_create)
    event.listen(metadata, "before_drop", _before_drop)
    event.listen(metadata, "after_drop", _after_drop)
    return found


def _send(connection: Connection, statement: str) -> None:
    """As it is: no parameters, so that no `%` of a function body is looked at."""
    connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def _before_create(target: Table, connection: Connection, **_: Any) -> None:
    if target.schema is not None:
        _send(connection, ddl.make_schema(target.schema))


def _set_storage(target: Table, connection: Connection, **_: Any) -> None:
    options = ", ".join(f"{name} = {value}" for name, value in STORAGE[target.name].items())
    where = "" if target.schema is None else f"{ddl.quoted(target.schema)}."
    _send(connection, f"alter table {where}{target.name} set ({options})")


def _after_create(target: Table, connection: Connection, **_: Any) -> None:
    for number in range(1, len(NAMES) + 1):
        ddl.install(partial(_send, connection), number, schema=target.schema, only=ddl.FUNCTIONS)


def _before_drop(target: MetaData, connection: Connection, tables: Iterable[Table] = (), **_: Any) -> None:
    ours: SagasTables = target.info[INFO]
    if ours.schema_version in tables:
        ddl.uninstall(partial(_send, connection), schema=ours.schema, only=("drop view",))


def _after_drop(target: MetaData, connection: Connection, tables: Iterable[Table] = (), **_: Any) -> None:
    ours: SagasTables = target.info[INFO]
    if ours.schema_version in tables:
        ddl.uninstall(partial(_send, connection), schema=ours.schema, only=("drop function",))


def _key(name: str, *columns: str) -> PrimaryKeyConstraint:
    return PrimaryKeyConstraint(*columns, name=conv(name))  # conv: no naming convention is put on top


def _check(name: str, condition: str) -> CheckConstraint:
    return CheckConstraint(text(condition), name=conv(name))


def _among(values: Iterable[str]) -> str:
    """One constant: what each statement reads of a constraint anew costs half as much as a list of constants."""
    return f"= any ('{{{','.join(values)}}}')"


def _text(name: str, *, null: bool = False, default: str | None = None) -> Column[Any]:
    return Column(name, Text, nullable=null, server_default=default)


def _whole(name: str, kind: Any = Integer, *, null: bool = False, default: Any = None) -> Column[Any]:
    return Column(name, kind, nullable=null, server_default=default, autoincrement=False)


def _flag(name: str) -> Column[Any]:
    return Column(name, Boolean, nullable=False, server_default=text("false"))


def _json(name: str, *, null: bool = False) -> Column[Any]:
    return Column(name, JSONB, nullable=null, server_default=None if null else EMPTY)


def _time(name: str, *, null: bool = False) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=null, server_default=None if null else NOW)


def _saga() -> list[Any]:
    worked_on = [status for status in Status if status in DIRECTION]
    ends = [status for status in Status if status in TERMINAL]
    return [
        Column("id", Uuid, nullable=False), _text("name"), _whole("version"), _text("key"),
        _whole("run", default=text("1")), _text("status"), _whole("seq"), _text("input_hash"), _json("steps"),
        _flag("cancel_requested"), _text("parked_from", null=True), Column("parent", Uuid),
        _text("parent_step", null=True),
        _text("subject_type", null=True), _text("subject_id", null=True), _time("deadline", null=True),
        _flag("paused"), _flag("failing"), _text("definition", default=""),
        _whole("priority", SmallInteger, default=ZERO), _text("ordering_key", null=True), _json("headers"),
        _text("error", default=""),
        _time("created_at"), _time("updated_at"), _time("finished_at", null=True),
        _key("sagas_saga_pkey", "id"),
        UniqueConstraint("name", "key", "run", name=conv("sagas_saga_key")),
        _check("sagas_saga_status", f"status {_among(Status)}"),
        _check("sagas_saga_parked_from", f"(parked_from is not null) = (status = '{Status.PARKED}') "
               f"and (parked_from is null or parked_from {_among(worked_on)})"),
        _check("sagas_saga_finished", f"(finished_at is not null) = (status {_among(ends)})"),
        _check("sagas_saga_times", r"created_at >= '1970-01-01 00\:00+00' and updated_at >= '1970-01-01 00\:00+00' "
               r"and deadline >= '1970-01-01 00\:00+00' and finished_at >= '1970-01-01 00\:00+00' "
               r"and created_at < '9000-01-01 00\:00+00' and updated_at < '9000-01-01 00\:00+00' "
               r"and deadline < '9000-01-01 00\:00+00' and finished_at < '9000-01-01 00\:00+00'"),
        Index(conv("sagas_saga_open"), "id", postgresql_where=text("finished_at is null")),
        Index(conv("sagas_saga_parked"), "id", postgresql_where=text("parked_from is not null")),
        Index(conv("sagas_saga_failed"), "status", "id",
              postgresql_where=text(f"finished_at is not null and status <> '{Status.COMPLETED}'")),
        Index(conv("sagas_saga_ended"), "finished_at", postgresql_where=text("finished_at is not null")),
        Index(conv("sagas_saga_children"), "parent", "parent_step", postgresql_where=text("parent is not null")),
        Index(conv("sagas_saga_children_open"), "parent", "parent_step",
              postgresql_where=text("parent is not null and finished_at is null")),
        Index(conv("sagas_saga_subject"), "subject_type", "subject_id",
              postgresql_where=text("subject_id is not null")),
    ]  # fmt: skip


def _log() -> list[Any]:
    return [
        Column("saga_id", Uuid, nullable=False), _whole("seq"), _text("kind"), _text("step", null=True),
        _whole("attempt", default=ZERO), _whole("token", BigInteger, null=True), _json("data"), _time("at"),
        _key("sagas_log_pkey", "saga_id", "seq"),
        _check("sagas_log_seq", "seq >= 0"),
        _check("sagas_log_kind", f"kind {_among(Kind)}"),
    ]  # fmt: skip


def _outbox() -> list[Any]:
    step, *_ = kinds = ["step", *REQUESTS]
    return [
        Column("id", BigInteger, Identity(always=False), nullable=False), Column("saga_id", Uuid), _text("kind"),
        _text("step", null=True), _text("direction", null=True), _text("holder", null=True), _text("queue"),
        _whole("priority", SmallInteger, default=ZERO), _whole("lane", default=ZERO), _text("ordering_key", null=True),
        _whole("place", BigInteger, null=True), _time("due_at"),
        _time("timer_at", null=True), _whole("token", BigInteger, default=ZERO), _whole("publishes", default=ZERO),
        _whole("deliveries", default=ZERO), _whole("failures", default=ZERO), _time("first_begun_at", null=True),
        _json("payload", null=True), _json("progress", null=True), _json("headers", null=True),
        _key("sagas_outbox_pkey", "id"),
        _check("sagas_outbox_kind", f"kind {_among(kinds)}"),
        _check("sagas_outbox_direction", f"(direction is null) = (kind <> '{step}') "
               f"and (direction is null or direction {_among(Direction)})"),
        _check("sagas_outbox_counts", "token >= 0 and publishes >= 0 and deliveries >= 0 and failures >= 0 "
               "and token < 4000000000000000000 and publishes < 1000000000 and deliveries < 1000000000 "
               "and failures < 1000000000"),
        _check("sagas_outbox_due", r"due_at >= '1970-01-01 00\:00+00' and due_at < '9000-01-01 00\:00+00'"),
        Index(conv("sagas_outbox_due"), "queue", "priority", "lane", "due_at"),
        Index(conv("sagas_outbox_line"), "queue", "ordering_key", "place", "id",
              postgresql_where=text("kind = 'step' and ordering_key is not null")),
        Index(conv("sagas_outbox_saga"), "saga_id"),
        Index(conv("sagas_outbox_signals"), "ordering_key", postgresql_where=text("kind = 'signal'")),
    ]  # fmt: skip


def _dedupe() -> list[Any]:
    return [
        _text("key"), Column("saga_id", Uuid), _text("state"), _whole("token", BigInteger, null=True),
        _text("fingerprint", null=True), _json("response", null=True), _time("created_at"),
        _time("expires_at", null=True),
        _key("sagas_dedupe_pkey", "key"),
        _check("sagas_dedupe_state", "state in ('started', 'done', 'closed')"),
        Index(conv("sagas_dedupe_saga"), "saga_id"),
    ]  # fmt: skip


def _signal() -> list[Any]:
    return [
        _text("name"), _text("key"), _text("step"), _text("dedupe_id"), Column("saga_id", Uuid), _time("sent_at"),
        _key("sagas_signal_pkey", "name", "key", "step", "dedupe_id"),
    ]  # fmt: skip


def _pause() -> list[Any]:
    return [
        _text("kind"), _text("name"), _whole("version", default=ZERO), _text("actor", default=""),
        _text("reason", default=""), _time("at"),
        _key("sagas_pause_pkey", "kind", "name", "version"),
        _check("sagas_pause_kind", "kind in ('queue', 'definition')"),
    ]  # fmt: skip


def _pace() -> list[Any]:
    return [
        _text("name"), _text("step"), _text("direction"), Column("mean", Double, nullable=False), _time("updated_at"),
        _key("sagas_pace_pkey", "name", "step", "direction"),
    ]  # fmt: skip


def _process() -> list[Any]:
    return [
        _text("holder"), _text("host"), _whole("pid"), _text("queues", default=""), _text("version", default=""),
        _time("started_at"), _time("seen_at"), _text("trouble", default=""),
        Column("trouble_since", DateTime(timezone=True)), _key("sagas_process_pkey", "holder"),
    ]  # fmt: skip


def _schedule() -> list[Any]:
    at = Column("next_at", DateTime(timezone=True), nullable=False)
    return [
        _text("name"), _text("saga"), _whole("version"), _text("timing"), _text("timezone"), _text("catch_up"),
        _text("overlap"), _text("fingerprint"), _whole("revision", BigInteger, default=ZERO), at,
        Column("look_at", DateTime(timezone=True), nullable=False), _time("last_at", null=True),
        _text("last_key", null=True), _time("last_started_at", null=True), _text("note", default=""), _flag("paused"),
        _text("actor", default=""), _text("reason", default=""), _time("declared_at"),
        _key("sagas_schedule_pkey", "name"),
        _check("sagas_schedule_catch_up", "catch_up in ('none', 'last', 'all')"),
        _check("sagas_schedule_overlap", "overlap in ('allow', 'skip', 'queue', 'cancel')"),
        _check("sagas_schedule_next", r"next_at >= '1970-01-01 00\:00+00' and next_at < '9000-01-01 00\:00+00'"),
    ]  # fmt: skip


def _lock() -> list[Any]:
    return [
        _text("subject"), Column("saga_id", Uuid, nullable=False), _text("step"), _flag("waiting"), _time("at"),
        _key("sagas_lock_pkey", "subject", "saga_id"),
        Index(conv("sagas_lock_holder"), "subject", unique=True, postgresql_where=text("not waiting")),
        Index(conv("sagas_lock_saga"), "saga_id"),
    ]  # fmt: skip


def _tombstone() -> list[Any]:
    return [
        _text("name"), _text("key"), _whole("run"), Column("saga_id", Uuid, nullable=False), _whole("version"),
        _text("status"), _text("input_hash"), Column("finished_at", DateTime(timezone=True), nullable=False),
        _key("sagas_tombstone_pkey", "name", "key", "run"),
    ]  # fmt: skip


def _archive() -> list[Any]:
    return [
        Column("saga_id", Uuid, nullable=False), _text("name"), _text("key"), _text("status"),
        Column("finished_at", DateTime(timezone=True), nullable=False), _time("archived_at"),
        Column("data", JSONB, nullable=False), _key("sagas_archive_pkey", "saga_id"),
    ]  # fmt: skip


def _tally() -> list[Any]:
    return [
        _text("name"), _text("step"), _text("what"), _whole("count", BigInteger, default=ZERO),
        Column("seconds", Double, nullable=False, server_default=ZERO),
        _key("sagas_tally_pkey", "name", "step", "what"),
    ]  # fmt: skip


def _schema() -> list[Any]:
    return [_whole("version"), _time("applied_at"), _key("sagas_schema_pkey", "version")]
