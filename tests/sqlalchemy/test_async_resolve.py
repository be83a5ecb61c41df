"""`async def` bodies and resolves use the application's own asynchronous engine, which belongs to one event loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sagas import NOT_DONE, NotDone, Retry, Saga, external_step, loop
from sagas_sqlalchemy import Sagas
from tests.sqlalchemy.conftest import begin, drain, rows, with_driver
from tests.sqlalchemy.shop import Told

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
