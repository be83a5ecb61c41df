"""Bare psycopg connections keep the callers' part of the suite."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
import pytest

from sagas.testing.conformance import CallerSuite, Integration, Unit


class BareUnit(Unit):
    """A transaction of a `psycopg.Connection`."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.using = connection

    def execute(self, statement: str) -> Any:
        return self.using.execute(statement)

    def commit(self) -> None:
        self.using.commit()

    def rollback(self) -> None:
        self.using.rollback()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        # not `connection.transaction()`, which is the whole transaction where none is open yet
        self.execute("savepoint here")
        try:
            yield
        except BaseException:
            self.execute("rollback to savepoint here")
            raise
        self.execute("release savepoint here")


class AsyncBareUnit(BareUnit):
    """A transaction of a `psycopg.AsyncConnection`."""

    awaited = True

    def __init__(self, connection: Any, runner: asyncio.Runner) -> None:
        self.using, self._runner = connection, runner

    def wait(self, given: Awaitable[Any]) -> Any:
        async def waiting() -> Any:
            return await given

        return self._runner.run(waiting())

    def execute(self, statement: str) -> Any:
        return self.wait(self.using.execute(statement))

    def commit(self) -> None:
        self.wait(self.using.commit())

    def rollback(self) -> None:
        self.wait(self.using.rollback())


class Bare(Integration):
    wakes = False

    def __init__(self, url: str) -> None:
        self.url = url

    @contextmanager
    def transaction(self, *, autocommit: bool = False) -> Iterator[Unit]:
        connection = psycopg.connect(self.url, autocommit=autocommit)
        try:
            yield BareUnit(connection)
        finally:
            connection.close()

    def autocommit(self) -> AbstractContextManager[Unit]:
        return self.transaction(autocommit=True)


class AsyncBare(Bare):
    @contextmanager
    def transaction(self, *, autocommit: bool = False) -> Iterator[Unit]:
        with asyncio.Runner() as runner:
            connection = runner.run(psycopg.AsyncConnection.connect(self.url, autocommit=autocommit))
            try:
                yield AsyncBareUnit(connection, runner)
            finally:
                runner.run(connection.close())


class TestConnection(CallerSuite):
    """`using=` a `psycopg.Connection`."""

    @pytest.fixture
    def integration(self, conformance_url: str) -> Integration:
        return Bare(conformance_url)


class TestAsyncConnection(CallerSuite):
    """`using=` a `psycopg.AsyncConnection`."""

    @pytest.fixture
    def integration(self, conformance_url: str) -> Integration:
        return AsyncBare(conformance_url)
