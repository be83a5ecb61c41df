"""What one `async def` body can do to the event loop that it shares with all others of its process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from sagas import Retry, Saga, external_step
from sagas.embedded import Embedded
from sagas.states import Status
from sagas_django.store import DjangoStore
from tests.cases.conftest import wait_until
from tests.shop.models import Booking
from tests.shop.sagas import Ordered
from tests.shop.world import World
from tests.support.stories import Aside, begin, begin_many, drain, expire_leases

pytestmark = pytest.mark.usefixtures("shop")


async def leaves_an_end_behind() -> None:
    """A task that nobody waits for asks for the end of the process, as `sys.exit()` in a library does."""

    async def ends() -> None:
        raise SystemExit(1)

    task = asyncio.create_task(ends())
    await asyncio.sleep(0.01)
    del task


async def stops_the_loop() -> None:
    """What old recipes for the end of a program do."""
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)


async def cancels_everybody() -> None:
    """Likewise; some of the others have not begun yet."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


HARM: list[Callable[[], Awaitable[None]]] = [leaves_an_end_behind, stops_the_loop, cancels_everybody]
chosen = HARM[:1]


class Harmful(Saga[Ordered], name="beyond.harmful", version=1):
    """The body of one saga does what the test says."""

    @external_step(compensate=None)
    async def body(self) -> None:
        if self.key == "odd":
            await chosen[0]()


@pytest.mark.parametrize("harm", HARM)
def test_a_body_that_harms_the_loop(world: World, harm: Callable[[], Awaitable[None]]) -> None:
    """Neighbours and whoever comes later are carried out, at the latest by the next worker, and the worker still ends
    when it is told to. If not, it would keep their leases for ever, and nobody would hear of it."""
    chosen[:] = [harm]
    begin_many(Harmful, ["a", "odd", "z"])
    worker = Embedded(DjangoStore("default"), concurrency=2)
    running = Aside(worker.run)
    try:
        wait_until(lambda: Harmful.get(key="odd").status is Status.COMPLETED, "the odd one is done")
        begin(Harmful, "later")
        wait_until(lambda: Harmful.get(key="later").status is Status.COMPLETED, "who came later is done")
    finally:
        worker.stop()
        running.join()
    expire_leases()
    drain()
    assert {Harmful.get(key=key).status for key in ("a", "z")} == {Status.COMPLETED}


asked: list[int] = []  # backend that each question was asked on
unheard: set[str] = set()


class Asking(Saga[Ordered], name="beyond.asking", version=1):
    """A plain step whose reply is lost; an async resolve asks the database what became of it."""

    @external_step(compensate=None, retry=Retry(max_attempts=2, first=0.01, factor=1, longest=0.01))
    def go(self) -> str:
        if str(self.key) not in unheard:
            unheard.add(str(self.key))
            raise ConnectionError("no reply")
        return "again"

    @go.resolve
    async def find(self) -> str:
        asked.append(await sync_to_async(backend)())
        return f"{await Booking.objects.acount()} bookings"


def backend() -> int:
    """Which server process this thread's connection has."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        return int(cursor.fetchone()[0])


def test_an_async_resolve_gets_over_a_lost_connection(world: World) -> None:
    """Django keeps one connection for what is awaited; one that has ended is renewed before the next question."""
    asked.clear()
    unheard.clear()
    begin(Asking, "a")
    drain()
    with connection.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(%s)", [asked[0]])
    begin_many(Asking, ["b", "c"])
    drain()
    assert {Asking.get(key=key).status for key in "abc"} == {Status.COMPLETED}
    assert len(asked) == 3
