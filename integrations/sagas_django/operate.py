"""The command line's look at a database alias, through Django's own connection, words and time zone."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from importlib.util import find_spec
from operator import or_
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import Q

from sagas import machine, operate
from sagas.desk import PACKAGE, connected
from sagas.doctor import Level, Problem
from sagas.errors import StoreNotReady
from sagas.ports import Connection
from sagas.states import State, Status
from sagas.store import rows as rows_module
from sagas.wording import Wording
from sagas_django import wording
from sagas_django.checks import POSTGRES, check_definitions, check_postgres, check_settings
from sagas_django.conf import definitions_file
from sagas_django.models import LogEntry, OutboxRow, SagaRow
from sagas_django.store import DjangoStore
from sagas_outbox.queries import query


class DjangoDesk:
    """One database alias.

    Raises:
        StoreNotReady: there is no such alias, or it is no Postgres.
    """

    command = "manage.py sagas"
    words: Wording = wording

    def __init__(self, database: str) -> None:
        _check_alias(database)
        self.name = self.using = database

    @property
    def definitions_file(self) -> Path | None:
        return definitions_file()

    def check_ready(self) -> None:
        check_ready(self.name)

    def problems(self) -> Iterator[Problem]:
        for each in [*check_settings(None), *check_definitions(None)]:
            level = Level.ERROR if each.is_serious() else Level.WARNING
            yield Problem(id=each.id or "", level=level, message=each.msg, hint=each.hint or "")
        if find_spec("celery") is None:
            return
        from celery import current_app

        from sagas_celery.app import FALLBACK
        from sagas_celery.doctor import examine

        if current_app.main != FALLBACK:  # else there is no app: an embedded worker, or a command without one
            with self.connect() as connection:
                paces = rows_module.paces(connection)
            yield from examine(current_app, DjangoStore(self.name).settings, paces)

    def connect(self) -> AbstractContextManager[Connection]:
        return connected(DjangoStore(self.name))

    def sagas(
        self, *, limit: int, statuses: Sequence[str] = (), name: str | None = None, version: int | None = None,
        waiting: bool = False, unfinished: bool = False,
    ) -> list[SagaRow]:  # fmt: skip
        sagas = SagaRow.objects.using(self.name).defer("headers").order_by("-id")
        if statuses:
            sagas = sagas.filter(reduce(or_, (in_status(Status(status)) for status in statuses)))
        if name:
            sagas = sagas.filter(name=name)
        if version is not None:
            sagas = sagas.filter(version=version)
        if waiting or unfinished:
            sagas = sagas.filter(finished_at=None)
        if waiting:
            sagas = sagas.extra(where=["jsonb_path_exists(steps, '$.*.status ? (@ == \"waiting\")')"])
        return list(sagas[:limit])

    def saga(self, id: UUID) -> SagaRow:
        return SagaRow.objects.using(self.name).get(pk=id)

    def rows(self, name: str, parameters: dict[str, Any]) -> list[Any]:
        return rows(self.name, name, parameters)

    def outbox(self, saga: UUID) -> list[OutboxRow]:
        return list(OutboxRow.objects.using(self.name).filter(saga_id=saga).order_by("id"))

    def log(self, saga: UUID) -> list[LogEntry]:
        return list(LogEntry.objects.using(self.name).filter(saga_id=saga).order_by("seq"))


def in_status(status: Status) -> Q:
    """Sagas in a status, said so that the partial indexes for open and parked sagas apply."""
    finished, works = machine.finished(State(status, 0)), status in machine.DIRECTION
    return Q(status=status, finished_at__isnull=not finished, parked_from__isnull=finished or works)


def rows(alias: str, name: str, parameters: dict[str, Any]) -> list[Any]:
    """What a named query of the core finds, through Django's own connection, as named tuples."""
    with connections[alias].cursor() as cursor:
        cursor.execute(query(PACKAGE, name), parameters)
        line = namedtuple(name, [column[0] for column in cursor.description])  # type: ignore[misc]
        return [line(*row) for row in cursor.fetchall()]


def check_ready(database: str) -> None:
    """Refuse to start on a database that lacks our tables.

    Raises:
        StoreNotReady: it cannot be reached, is no Postgres, or is not migrated.
    """
    _check_alias(database)
    for problem in check_postgres(database):
        raise StoreNotReady(f"{problem.msg}. {problem.hint or ''}".strip())


def _check_alias(database: str) -> None:
    if database not in connections:
        raise StoreNotReady(f"--database {database!r}: no such alias in DATABASES; known: {', '.join(connections)}")
    if (vendor := connections[database].vendor) != POSTGRES:
        raise StoreNotReady(
            f"--database {database!r} is {vendor}, sagas live in Postgres; pass --database the alias of one"
        )


def current_step(saga: SagaRow) -> str:
    """What a saga is about to do, or parked over; nothing when it has ended or this process lacks its definition."""
    return operate.current_step(saga, DjangoDesk.words)
