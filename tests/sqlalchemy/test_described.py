"""What is written down twice says the same: mapped classes and tables, what is made and what is dropped."""

from __future__ import annotations

import re
import typing
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import BigInteger, Boolean, Column, DateTime, Integer, MetaData, SmallInteger, Text, Uuid, inspect
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, registry

from sagas.store.schema_files import NAMES, schema_sql
from sagas.testing.servers import Postgres
from sagas_outbox.queries import query
from sagas_sqlalchemy import ddl, sagas_models
from sagas_sqlalchemy.models import DedupeRecord, LogEntry, OutboxRow, SagaRow

LEFT_OUT = {OutboxRow: {"priority", "ordering_key", "lane", "place"}}  # by which the outbox is read, and nobody else
KINDS = {
    BigInteger: int, Boolean: bool, DateTime: datetime, Integer: int, SmallInteger: int, Text: str, Uuid: UUID,
}  # fmt: skip
MADE = re.compile(
    r"^create (?:or replace )?(function|table|view|type|sequence)\s+(?:if not exists )?(\w+)", re.I | re.M
)
DROPPED = re.compile(r"^drop (function|table|view|type|sequence)\s+(?:if exists )?(\w+)", re.I | re.M)
NAMED = """
    select relname from pg_class where relname like 'sagas%' union all
    select proname from pg_proc where proname like 'sagas%' union all
    select typname from pg_type where typname like 'sagas%'
"""


@pytest.mark.parametrize("described", [SagaRow, LogEntry, OutboxRow, DedupeRecord])
def test_attributes_are_the_columns(described: type[Any]) -> None:
    """Each column is declared on the class that is mapped to its table, with its type and whether it may be null."""
    models = sagas_models(registry(metadata=MetaData()))
    mapped = next(
        each for each in (models.saga, models.log, models.outbox, models.dedupe) if issubclass(each, described)
    )
    columns: dict[str, Column[Any]] = dict(inspect(mapped).local_table.columns)
    declared = typing.get_type_hints(described)
    assert set(columns) - set(declared) == LEFT_OUT.get(described, set())
    assert set(declared) <= set(columns)
    for name, hint in declared.items():
        assert typing.get_origin(hint) is Mapped, name
        (inner,) = typing.get_args(hint)
        column = columns[name]
        if isinstance(column.type, JSONB):
            assert inner is Any or (typing.get_origin(inner) is dict and not column.nullable), name
            continue
        kind = KINDS[type(column.type)]
        assert inner == (kind | None if column.nullable else kind), name


def test_everything_that_is_made_is_dropped() -> None:
    """The script that drops names each function and table of the numbered files, and nothing else."""
    made = {found for number in range(1, len(NAMES) + 1) for found in MADE.findall(schema_sql(number))}
    assert len(made) > 10
    assert set(DROPPED.findall(query("sagas_sqlalchemy", "drop"))) == made


@pytest.mark.parametrize("schema", [None, 'Odd "one"'])
def test_nothing_is_left(schema: str | None, postgres_server: Postgres) -> None:
    """Made and dropped again, the database has nothing of our names in it."""
    url = postgres_server.create_database(name := f"dropped_{'in' if schema else 'out'}")
    try:
        with psycopg.connect(url, autocommit=True) as connection:

            def run(statement: str) -> object:
                return connection.execute(statement.encode(), prepare=False)

            for number in range(1, len(NAMES) + 1):
                ddl.install(run, number, schema=schema)
            assert len(connection.execute(NAMED).fetchall()) > 20
            ddl.uninstall(run, schema=schema)
            assert connection.execute(NAMED).fetchall() == []
    finally:
        postgres_server.drop_database(name)
