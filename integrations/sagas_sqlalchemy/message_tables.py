"""The columns of the message and inbox tables; see `sagas_sqlalchemy.tables`."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.sql.elements import conv

NOW: Final = text("clock_timestamp()")
ZERO: Final = text("0")


def message() -> list[Any]:
    """Columns, constraints and indexes of `sagas_message`."""
    return [
        Column("id", BigInteger, Identity(always=False), nullable=False), Column("message_id", Uuid, nullable=False),
        Column("destination", Text, nullable=False), Column("ordering_key", Text),
        Column("state", Text, nullable=False, server_default="waiting"), Column("holder", Text),
        _time("due_at"), Column("token", BigInteger, nullable=False, server_default=ZERO, autoincrement=False),
        Column("failures", Integer, nullable=False, server_default=ZERO, autoincrement=False),
        Column("payload", JSONB, nullable=False), Column("options", JSONB), Column("headers", JSONB),
        Column("error", Text, nullable=False, server_default=""), _time("created_at"),
        Column("finished_at", DateTime(timezone=True)),
        PrimaryKeyConstraint("id", name=conv("sagas_message_pkey")),
        _check("sagas_message_state", "state in ('waiting', 'sent', 'dead')"),
        _check("sagas_message_finished", "(finished_at is null) = (state = 'waiting')"),
        _check("sagas_message_counts", "token >= 0 and failures >= 0 and token < 4000000000000000000 "
               "and failures < 1000000000"),
        _check("sagas_message_due_at", r"due_at >= '1970-01-01 00\:00+00' and due_at < '9000-01-01 00\:00+00'"),
        Index(conv("sagas_message_due"), "destination", "due_at", "id", postgresql_where=text("state = 'waiting'")),
        Index(conv("sagas_message_key"), "ordering_key", "id",
              postgresql_where=text("ordering_key is not null and state <> 'sent'")),
        Index(conv("sagas_message_done"), "state", "finished_at", postgresql_where=text("state <> 'waiting'")),
    ]  # fmt: skip


def inbox() -> list[Any]:
    """Columns, constraints and indexes of `sagas_inbox`."""
    return [
        Column("message_id", Text, nullable=False), Column("handler", Text, nullable=False), _time("at"),
        PrimaryKeyConstraint("message_id", "handler", name=conv("sagas_inbox_pkey")),
        Index(conv("sagas_inbox_at"), "at"),
    ]  # fmt: skip


def _time(name: str) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=NOW)


def _check(name: str, condition: str) -> CheckConstraint:
    return CheckConstraint(text(condition), name=conv(name))
