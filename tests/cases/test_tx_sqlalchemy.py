"""Incidents at the edge of a SQLAlchemy transaction: released savepoints, shared sessions, cancelled tasks."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Generator
from typing import Any

import pytest
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from sagas_outbox.wake import Throttle
from tests.cases.conftest import PATIENCE, wait_until
from tests.sqlalchemy.conftest import EngineMaker, drain, make_engine, make_runtime, rows, shop_template, url
from tests.sqlalchemy.shop import Note
from tests.sqlalchemy.test_callers_pools import RuntimeMaker
from tests.sqlalchemy.test_callers_wake import ear_of
from tests.sqlalchemy.ways import Deliver, Parcel, keys, unit

__all__ = ["make_engine", "make_runtime", "shop_template", "url"]

SESSIONS = ["psycopg Session", "psycopg2 Session", "psycopg AsyncSession", "asyncpg AsyncSession"]
ASYNC_DRIVERS = ["asyncpg", "psycopg_async"]
TASKS = 20
MOST_AWAITS = 200  # in a transaction of a few statements
LEFT_BEHIND = """
select state, query from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and (
    state <> 'idle' or exists (select from pg_locks where pg_locks.pid = pg_stat_activity.pid)
) and backend_type = 'client backend'
"""


@pytest.mark.parametrize(("inner", "outer", "sagas"), [(True, False, 0), (False, True, 0), (True, True, 1)])
@pytest.mark.parametrize("way", SESSIONS)
def test_tx07_a_released_savepoint_of_a_session_is_no_commit(
    way: str, inner: bool, outer: bool, sagas: int, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the commit of the session's outermost transaction makes a saga and sends its wake-up, though SQLAlchemy
    says "committed" to listeners when a savepoint is released as well."""
    monkeypatch.setattr(Throttle, "allows", lambda self: True)
    with ear_of(url) as heard:
        with unit(way, url) as caller:
            savepoint = caller.do("begin_nested")
            caller.start(Parcel(), key="a")
            caller.wait(savepoint.commit() if inner else savepoint.rollback())
            assert (heard(), keys(url)) == (0, [])
            caller.do("commit" if outer else "rollback")
            assert (heard(), len(keys(url))) == (sagas, sagas)
        assert (heard(), len(keys(url))) == (0, sagas)


@pytest.mark.parametrize("driver", ASYNC_DRIVERS)
def test_tx11_one_session_shared_by_tasks(driver: str, make_engine: EngineMaker, url: str) -> None:
    """Twenty tasks, each with a savepoint, that start sagas on one session: an error is raised, and nothing of the
    transaction is committed, what was written before them included.

    That a session is not for several tasks at once is a rule of SQLAlchemy's; it notices, and nothing of ours hides
    that or commits by itself.
    """

    async def place() -> None:
        engine = make_engine(driver)
        try:
            async with AsyncSession(engine) as session, session.begin():
                await Deliver.astart(Parcel(), key="before", using=session)
                async with asyncio.TaskGroup() as group:
                    for number in range(TASKS):
                        group.create_task(_start(session, number))
        finally:
            await engine.dispose()

    async def _start(session: AsyncSession, number: int) -> None:
        async with session.begin_nested():
            await Deliver.astart(Parcel(number), key=f"{number}", using=session)

    with pytest.raises(BaseExceptionGroup) as caught:
        asyncio.run(place())
    assert caught.group_contains(SQLAlchemyError)
    assert keys(url) == []
    assert rows(url, "select count(*) from sagas_outbox") == [0]
    wait_until(lambda: not rows(url, LEFT_BEHIND), "no transaction stays open")


@pytest.mark.parametrize("driver", ASYNC_DRIVERS)
def test_tx11_a_session_for_each_task(driver: str, make_engine: EngineMaker, url: str) -> None:
    """Twenty tasks with a session each, interleaved on fewer connections: exactly those that commit have a saga."""

    async def place(engine: Any, number: int) -> None:
        async with AsyncSession(engine) as session, session.begin() as transaction:
            await Deliver.astart(Parcel(number), key=f"{number:02}", using=session)
            session.add(Note(text=f"{number:02}"))
            await session.flush()
            if number % 2:
                await transaction.rollback()

    async def all_of_them() -> None:
        engine = make_engine(driver, pool_size=5, max_overflow=0)
        await asyncio.gather(*[place(engine, number) for number in range(TASKS)])
        await engine.dispose()

    asyncio.run(all_of_them())
    committed = [f"{number:02}" for number in range(0, TASKS, 2)]
    assert keys(url) == sorted(rows(url, "select text from note")) == committed
    assert rows(url, "select count(distinct saga_id) from sagas_outbox") == [TASKS // 2]


class Cancelling:
    """Awaits something, and has the task cancelled at one of the points where it gives way to the loop.

    Args:
        work: what is awaited.
        at: the number of the point, from 1.
    """

    def __init__(self, work: Awaitable[None], at: int) -> None:
        self._work, self._at, self.passed = work, at, 0

    @property
    def cancelled(self) -> bool:
        """Whether there was such a point."""
        return self.passed >= self._at

    @types.coroutine
    def run(self) -> Generator[Any, Any, None]:
        """Do it."""
        inner: Any = self._work.__await__()
        step, argument = inner.send, None
        while True:
            try:
                waits_for = step(argument)
            except StopIteration:
                return
            self.passed += 1
            if self.passed == self._at:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                step, argument = inner.send, (yield waits_for)
            except BaseException as problem:
                step, argument = inner.throw, problem


@pytest.mark.parametrize("driver", ASYNC_DRIVERS)
def test_db07_a_start_cancelled_at_any_await(
    driver: str, make_engine: EngineMaker, make_runtime: RuntimeMaker, url: str
) -> None:
    """Wherever in its transaction a task is cancelled, the commit included: the connection is back in the pool, on the
    server no transaction is open and no lock held, and saga, log, outbox and business row are all there or none is.

    Whoever starts the saga again is not held up, and a worker runs it. Workers and relays are no asyncio tasks.
    """

    async def place(engine: Any, key: str) -> None:
        async with AsyncSession(engine) as session, session.begin():
            await Deliver.astart(Parcel(), key=key, using=session)
            session.add(Note(text=key))
            await session.flush()

    async def cancelled_at(engine: Any, at: int) -> bool:
        async with asyncio.timeout(PATIENCE):
            async with engine.connect():  # not counted: connecting anew
                pass
            attempt = Cancelling(place(engine, f"{at:03}"), at)
            task = asyncio.create_task(attempt.run())
            await asyncio.wait([task])
            assert task.cancelled() or not task.exception()
            assert engine.pool.checkedout() == 0
            await asyncio.to_thread(wait_until, lambda: not rows(url, LEFT_BEHIND), f"all is over, cancelled at {at}")
        return attempt.cancelled

    async def at_every_point() -> int:
        engine = make_engine(driver, pool_size=1, max_overflow=0, pool_timeout=5)
        at = 1
        while await cancelled_at(engine, at):
            at += 1
            assert at < MOST_AWAITS
        for number in range(1, at + 1):
            if f"{number:03}" not in keys(url):
                await asyncio.wait_for(place(engine, f"{number:03}"), PATIENCE)
        await engine.dispose()
        return at

    points = asyncio.run(at_every_point())
    assert points > 4, "statements and the commit give way at least once each"
    written = [f"{number:03}" for number in range(1, points + 1)]
    assert keys(url) == sorted(rows(url, "select text from note")) == written
    for table in ("log", "outbox"):
        assert rows(url, f"select count(*), count(distinct saga_id) from sagas_{table}") == [(points, points)]
    drain(make_runtime(make_engine()))
    assert rows(url, "select distinct status from sagas_saga") == ["completed"]
