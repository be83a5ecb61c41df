"""The columns of the tables of queues with limits; see `sagas_sqlalchemy.tables`."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.sql.elements import conv

NOW: Final = text("clock_timestamp()")


def queue() -> list[Any]:
    """Columns and constraints of `sagas_queue`."""
    return [
        Column("name", Text, nullable=False), Column("concurrency", Integer), Column("rate", Integer),
        Column("period", Double), Column("spent", ARRAY(Integer), nullable=False, server_default=text("'{}'")),
        Column("spent_at", BigInteger, nullable=False, server_default=text("0"), autoincrement=False),
        Column("declared", JSONB), Column("actor", Text, nullable=False, server_default=""),
        Column("reason", Text, nullable=False, server_default=""),
        Column("at", DateTime(timezone=True), nullable=False, server_default=NOW),
        PrimaryKeyConstraint("name", name=conv("sagas_queue_pkey")),
        CheckConstraint(
            text("concurrency >= 1 and rate >= 1 and period > 0 and (rate is null) = (period is null)"),
            name=conv("sagas_queue_limits"),
        ),
    ]  # fmt: skip


def slot() -> list[Any]:
    """Columns, constraints and indexes of `sagas_slot`."""
    return [
        Column("outbox_id", BigInteger, nullable=False, autoincrement=False), Column("queue", Text, nullable=False),
        Column("token", BigInteger, nullable=False, autoincrement=False),
        Column("begun", Boolean, nullable=False, server_default=text("false")),
        Column("cell", BigInteger, autoincrement=False),
        PrimaryKeyConstraint("outbox_id", name=conv("sagas_slot_pkey")),
        Index(conv("sagas_slot_queue"), "queue"),
    ]  # fmt: skip
