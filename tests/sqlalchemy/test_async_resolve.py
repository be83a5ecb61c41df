"""`async def` bodies and resolves use the application's own asynchronous engine, which belongs to one event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import scoped_session, sessionmaker

from sagas import NOT_DONE, NotDone, Retry, Saga, external_step, loop
from sagas.embedded import Embedded
from sagas_sqlalchemy import Sagas
from tests.sqlalchemy.conftest import begin, drain, rows, with_driver
from tests.sqlalchemy.shop import Told
from tests.sqlalchemy.test_runtime import RuntimeMaker
from tests.sqlalchemy.waiting import wait_for

MANY = 30
engines: list[AsyncEngine] = []  # the application's one
lost: set[str] = set()  # whose reply was lost already


async def ask(statement: str, **values: Any) -> Any:
    """One statement on the application's asynchronous engine, slow enough that others come in between."""
    async with engines[0].begin() as connection:
        await connection.execute(text("select pg_sleep(0.005)"))
        return (await connection.execute(text(statement), values)).scalar()


class Parcel(Saga[Told], name="sa.parcel", version=1):
    """Awaited steps around a plain one, about which is asked by `async def`."""

    @external_step(compensate=None)
    async def weigh(self) -> int:
        return int(await ask("select 7"))

    @external_step(compensate=None, retry=Retry(max_attempts=3, first=0.01, factor=1, longest=0.01))
    def hand_over(self) -> str:
        if self.input.text not in lost:
            lost.add(self.input.text)
            raise ConnectionError("no reply")
        return "again"

    @hand_over.resolve
    async def find(self) -> str | NotDone:
        return "there" if await ask("select :text <> ''", text=self.input.text) else NOT_DONE

    @external_step(pivot=True)
    async def tell(self) -> str:
        return str(await ask("select 'told'"))


@pytest.fixture
def application(url: str) -> Iterator[None]:
    """The application's engine, closed on the loop that it was used on."""
    home = loop.join()  # it goes on when the worker has ended
    engines[:] = [create_async_engine(with_driver(url, "asyncpg"), pool_size=2, max_overflow=0)]
    lost.clear()
    yield
    home.wait_for(engines[0].dispose())
    loop.leave()


def test_a_resolve_of_a_plain_step_shares_the_loop(engine: Engine, runtime: Sagas, application: None, url: str) -> None:
    """A second loop in a second thread would break the pool, its connections, or the process."""
    begin(engine, Parcel, *(Told("", str(number)) for number in range(MANY)))
    drain(runtime, concurrency=4)
    assert rows(url, "select distinct status from sagas_saga") == ["completed"]
    answered = "select count(*) from sagas_log where step = 'hand_over' and data->>'source' = 'resolve'"
    assert rows(url, answered) == [MANY]


ticks: list[float] = []  # when the loop was free
asking = threading.Event()


class Guarded(Saga[Told], name="sa.guarded", version=1):
    """An async resolve of a plain step that speaks with the database by itself."""

    @external_step(compensate=None, retry=Retry(max_attempts=3, first=0.01, factor=1, longest=0.01))
    def hand_over(self) -> str:
        raise ConnectionError("no reply")

    @hand_over.resolve
    async def find(self) -> str:
        asking.set()
        await asyncio.sleep(0.2)
        await self.aheartbeat({"seen": 1})
        return await self.aeffect("look", self.look, returns=str)

    async def look(self, key: str) -> str:
        return "there"


class Ticking(Saga[Told], name="sa.ticking", version=1):
    """Another saga's body on the same loop."""

    @external_step(pivot=True)
    async def tick(self) -> None:
        while not asking.is_set() or len(ticks) < 20:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.1)


def test_the_database_of_a_resolve_does_not_hold_up_the_loop(engine: Engine, runtime: Sagas, url: str) -> None:
    """Where somebody has locked what it waits for, only the resolve waits."""
    ticks.clear()
    asking.clear()
    begin(engine, Guarded, Told("", "a"))
    begin(engine, Ticking, Told("", "b"))
    locked = threading.Event()

    def lock() -> None:
        asking.wait(20)
        with psycopg.connect(url) as connection:
            connection.execute("lock table sagas_outbox in exclusive mode")
            locked.set()
            time.sleep(1.5)  # how long somebody has it is what is tested

    other = threading.Thread(target=lock)
    other.start()
    drain(runtime, concurrency=2)
    other.join()
    assert locked.is_set() and max(after - before for before, after in pairwise(ticks)) < 1.2
    assert rows(url, "select distinct status from sagas_saga") == ["completed"]


sessions: list[scoped_session[Any]] = []  # the application's one


class Searching(Saga[Told], name="sa.searching", version=1):
    """An awaited step about which a plain function asks, with the session of its thread."""

    @external_step(compensate=None, retry=Retry(max_attempts=3, first=0.01, factor=1, longest=0.01))
    async def go(self) -> str:
        raise ConnectionError("no reply")

    @go.resolve
    def find(self) -> str:
        return str(sessions[0].scalar(text("select 'there'")))


def test_a_plain_resolve_leaves_no_session_behind(engine: Engine, make_runtime: RuntimeMaker, url: str) -> None:
    """It would see the next saga as the database was then, and keep a transaction open for as long as the worker."""
    sessions[:] = [scoped_session(sessionmaker(engine))]
    begin(engine, Searching, Told("", "a"))
    worker = Embedded(make_runtime(sessions[0]).store, concurrency=1)
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        wait_for(url, "select 1 from sagas_saga where status = 'completed'")
        asked = "query like '%there%' and state = 'idle in transaction' and datname = current_database()"
        assert rows(url, f"select query from pg_stat_activity where {asked}") == []
    finally:
        worker.stop()
        running.join(20)
