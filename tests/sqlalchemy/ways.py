"""Every kind of session and connection that sagas can be started on, behind one face, and what they write."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sagas import Saga, external_step

BLOCKING = [
    "psycopg Session", "psycopg2 Session", "psycopg scoped", "psycopg Connection", "psycopg2 Connection",
]  # fmt: skip
AWAITED = [
    "psycopg AsyncSession", "asyncpg AsyncSession", "asyncpg scoped", "psycopg AsyncConnection",
    "asyncpg AsyncConnection",
]  # fmt: skip
BARE = ["bare Connection", "bare AsyncConnection"]
WITH_SQLALCHEMY = BLOCKING + AWAITED


@dataclass(frozen=True)
class Parcel:
    """The usual input."""

    number: int = 0
    note: str = ""


class Deliver(Saga[Parcel], name="callers.deliver", version=1):
    """One external step that does nothing."""

    @external_step(compensate=None)
    def carry(self) -> None: ...


class Unit:
    """A session or connection.

    Args:
        using: it.
        wait: how to wait for what its methods return.
    """

    def __init__(self, using: Any, wait: Callable[[Any], Any]) -> None:
        self.using, self._wait = using, wait
        self.awaited = "async" in type(using).__name__.lower()

    def start(self, *arguments: Any, saga: type[Saga[Any]] = Deliver, **named: Any) -> Any:
        return self._call(saga, "start", *arguments, **named)

    def get(self, **named: Any) -> Any:
        return self._call(Deliver, "get", **named)

    def cancel(self, **named: Any) -> Any:
        return self._call(Deliver, "cancel", **named)

    def _call(self, saga: type[Saga[Any]], verb: str, *arguments: Any, **named: Any) -> Any:
        call = getattr(saga, f"a{verb}" if self.awaited else verb)
        return self.wait(call(*arguments, using=self.using, **named))

    def wait(self, given: Any) -> Any:
        """What it is, or will be."""
        return self._wait(given) if inspect.isawaitable(given) else given

    def do(self, name: str, *arguments: Any) -> Any:
        """Call a method of the session or connection."""
        return self.wait(getattr(self.using, name)(*arguments))

    def sql(self, statement: str) -> Any:
        """Run a statement on it."""
        bare = type(self.using).__module__.startswith("psycopg")
        return self.do("execute", statement if bare else text(statement))


@contextmanager
def unit(way: str, url: str, **options: Any) -> Iterator[Unit]:
    """A session or connection of its own, closed at the end and not committed.

    Args:
        way: one of the lists above.
        url: of the database.
        options: of the engine or the bare connection.
    """
    driver, kind = way.split()
    with asyncio.Runner() as runner:
        made = runner.run(_make(driver, kind, url, options))
        using, closers = made
        try:
            yield Unit(using, lambda waiting: runner.run(_awaited(waiting)))
        finally:
            for close in closers:
                runner.run(_closed(close))


async def _awaited(waiting: Any) -> Any:
    return await waiting


async def _closed(close: Callable[[], Any]) -> None:
    closed = close()
    if inspect.isawaitable(closed):
        await closed


async def _make(driver: str, kind: str, url: str, options: Any) -> tuple[Any, Sequence[Callable[[], Any]]]:
    if driver == "bare":
        if kind == "Connection":
            connection = psycopg.connect(url, **options)
            return connection, [connection.close]
        awaited = await psycopg.AsyncConnection.connect(url, **options)
        return awaited, [awaited.close]
    address = sqlalchemy_url(url, driver)
    if kind in ("Session", "Connection") or (driver, kind) == ("psycopg", "scoped"):
        engine = create_engine(address, **options)
        makers: dict[str, Callable[[], Any]] = {
            "Session": lambda: Session(engine), "Connection": engine.connect,
            "scoped": lambda: scoped_session(sessionmaker(engine)),
        }  # fmt: skip
        made = makers[kind]()
        return made, [made.remove if kind == "scoped" else made.close, engine.dispose]
    async_engine = create_async_engine(address, **options)
    if kind == "scoped":
        scoped = async_scoped_session(async_sessionmaker(async_engine), scopefunc=lambda: 0)
        return scoped, [scoped.remove, async_engine.dispose]
    using: Any = AsyncSession(async_engine) if kind == "AsyncSession" else await async_engine.connect()
    return using, [using.close, async_engine.dispose]


def sqlalchemy_url(url: str, driver: str = "psycopg") -> str:
    """The URL with a driver in it."""
    return url.replace("postgresql://", f"postgresql+{driver}://")


def rows(url: str, query: str, *parameters: object) -> list[Any]:
    """What another connection sees."""
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query.encode(), parameters or None).fetchall()


def keys(url: str) -> list[str]:
    """The keys of all sagas that are committed."""
    return [key for (key,) in rows(url, "select key from sagas_saga order by key")]
