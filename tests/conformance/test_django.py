"""Django keeps the whole suite, called as it is and awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, models, transaction
from pytest_django import DjangoDbBlocker

from sagas.testing.conformance import CallerSuite, Integration, Unit, WorkerSuite
from sagas_django.models import HasSagas
from sagas_django.store import DjangoStore
from tests.integration.conftest import database_alias
from tests.settings import database_from_url


class Note(HasSagas):
    """The suite's notes; the columns that have defaults are not mapped."""

    text = models.TextField(unique=True)

    class Meta:
        app_label = "shop"
        db_table = "conformance_note"
        managed = False

    def __str__(self) -> str:
        return str(self.text)


class DjangoUnit(Unit):
    """An `atomic` block that is left by `commit()` or `rollback()`."""

    def __init__(self, block: Any) -> None:
        self._block = block

    def execute(self, statement: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    def commit(self) -> None:
        self._left(None)

    def rollback(self) -> None:
        transaction.set_rollback(True)
        self._left(None)

    def _left(self, problem: BaseException | None) -> None:
        block, self._block = self._block, None
        if block is not None:
            block.__exit__(type(problem) if problem else None, problem, None)

    def close(self) -> None:
        """What is not committed is rolled back."""
        self._left(GeneratorExit())

    def savepoint(self) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = transaction.atomic()
        return found

    def subject(self) -> tuple[Any, tuple[str, str]] | None:
        note = Note.objects.create(text="subject")
        return note, ("shop.Note", str(note.pk))


class AwaitedUnit(DjangoUnit):
    """The same, with calls from coroutines."""

    awaited = True

    def wait(self, given: Awaitable[Any]) -> Any:
        async def waiting() -> Any:
            return await given

        return async_to_sync(waiting)()


class Django(Integration):
    """The alias "default"."""

    unit: type[DjangoUnit] = DjangoUnit

    def __init__(self, url: str) -> None:
        self.url, self.store = url, DjangoStore("default")

    @contextmanager
    def transaction(self) -> Iterator[Unit]:
        block = transaction.atomic()
        block.__enter__()
        unit = self.unit(block)
        try:
            yield unit
        finally:
            unit.close()
            connection.close()  # in a thread of its own nobody else does

    @contextmanager
    def autocommit(self) -> Iterator[Unit]:
        yield self.unit(None)
        connection.close()

    def write(self, run: Any, text: str) -> None:
        Note.objects.create(text=text)

    def execute(self, run: Any, statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    def savepoint(self, run: Any) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = transaction.atomic()
        return found

    def after_commit(self, run: Any, call: Callable[[], object]) -> None:
        transaction.on_commit(call)

    def endings(self) -> Mapping[str, Callable[[Any], object]]:
        return {
            "commit": lambda run: transaction.commit(),
            "rollback": lambda run: transaction.rollback(),
            "set_autocommit": lambda run: transaction.set_autocommit(True),
            "durable": lambda run: transaction.atomic(durable=True).__enter__(),
            "COMMIT": lambda run: self.execute(run, "COMMIT"),
            "ROLLBACK": lambda run: self.execute(run, "ROLLBACK"),
            "hidden": lambda run: self.execute(run, "select 1; commit"),
            "commented": lambda run: self.execute(run, "/* done */ -- well\n commit"),
        }

    def leave_open(self, run: Any) -> None:
        transaction.set_autocommit(False)
        Note.objects.count()


class AwaitedDjango(Django):
    unit = AwaitedUnit


@pytest.fixture
def django_url(conformance_url: str, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """The alias "default" is the suite's database, without a transaction around the test."""
    with django_db_blocker.unblock(), database_alias("default", database_from_url(conformance_url)):
        yield conformance_url
        connection.close()


class TestCalled(CallerSuite):
    """`start()` in a view."""

    @pytest.fixture
    def integration(self, django_url: str) -> Integration:
        return Django(django_url)


class TestAwaited(CallerSuite):
    """`await astart()`."""

    @pytest.fixture
    def integration(self, django_url: str) -> Integration:
        return AwaitedDjango(django_url)


class TestWorkers(WorkerSuite):
    """Local steps on Django's own connection."""

    @pytest.fixture
    def integration(self, django_url: str, settings: Any) -> Integration:
        settings.SAGAS = {"WAKE": False}
        return Django(django_url)
