"""What one `async def` body can do to the event loop that it shares with all others of its process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from sagas import Retry, Saga, external_step
from sagas.embedded import Embedded
from sagas.states import Status
from sagas.threads import EACH
from sagas_django.models import OutboxRow, SagaRow
from sagas_django.store import DjangoStore
from tests.cases.conftest import Gate, wait_until
from tests.shop.models import Booking
from tests.shop.sagas import Ordered
from tests.shop.world import World, world
from tests.support.stories import Aside, begin, begin_many, bring_forward, drain, expire_leases
from tests.support.workers import begin_due, living_worker, one_worker, run_batch

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


def ask_which(run: Saga[Ordered]) -> str:
    """A question for the database, which it does not get back from."""
    asked.append(backend())
    return "there"


class AskingPlainly(Saga[Ordered], name="beyond.asking_plainly", version=1):
    """An awaited step whose reply is lost; a plain resolve finds out what became of it."""

    @external_step(compensate=None, timeout=600, retry=Retry(max_attempts=2, first=0.01, factor=1, longest=0.01))
    async def go(self) -> str:
        raise ConnectionError("no reply")

    @go.resolve
    def find(self) -> str:
        return str(world.act("find", self))


class AskingBriefly(Saga[Ordered], name="beyond.asking_briefly", version=1):
    """Likewise, and it may not take long."""

    @external_step(compensate=None, timeout=0.1, retry=Retry(max_attempts=2, first=0.01, factor=1, longest=0.01))
    async def go(self) -> str:
        raise ConnectionError("no reply")

    @go.resolve
    def find(self) -> str:
        return "there"


def test_a_plain_resolve_gets_over_a_lost_connection(world: World) -> None:
    """It is called in a thread beside the event loop, whose connections are renewed as those of other threads are."""
    asked.clear()
    world.always("find", ask_which)
    worker = Embedded(DjangoStore("default"), concurrency=1)
    running = Aside(worker.run)
    try:
        for key in "ab":
            begin(AskingPlainly, key)
            wait_until(lambda key=key: AskingPlainly.get(key=key).status is Status.COMPLETED, f"{key} is done")
            with connection.cursor() as cursor:
                cursor.execute("select pg_terminate_backend(%s)", [asked[-1]])
    finally:
        worker.stop()
        running.join()
    assert len(asked) == 2


def no_such_payment(run: Saga[Ordered]) -> str:
    """A slip in a search."""
    return next(iter(()))


def test_a_plain_resolve_that_raises_stop_iteration(world: World) -> None:
    """It has not decided, as after any other error; no future hands this one on, so its row would never be recorded."""
    world.plan("find", no_such_payment, "there")
    begin(AskingPlainly)
    worker = Aside(drain)
    worker.join()
    assert AskingPlainly.get(key="a").status is Status.COMPLETED


def begun_to_ask(*sagas: type[Saga[Ordered]]) -> None:
    """Let all of them have had their attempt, so that they ask next."""
    with one_worker() as worker:
        run_batch(worker, begin_due(worker))
    bring_forward()
    for saga in sagas:
        assert saga.get(key="0").steps["go"].do.attempts == 1


@pytest.mark.parametrize("stops", [False, True])
def test_who_waits_for_a_thread_has_not_begun(world: World, settings: Any, stops: bool) -> None:
    """Hanging resolves have taken all the threads there are. The time of those behind them does not run, so it ends no
    worker; they go to another one, as if they had not been begun: after a while, or at once where this one stops."""
    ended: list[str] = []
    hang, opened = threading.Semaphore(0), threading.Event()

    def hangs(run: Saga[Ordered]) -> str:
        hang.release()
        assert opened.wait(20)
        return "there"

    world.always("find", hangs)
    begin_many(AskingPlainly, map(str, range(EACH)))
    begin_many(AskingBriefly, map(str, range(5)))
    begun_to_ask(AskingPlainly, AskingBriefly)
    numbers = {"grace": 0.1, "heartbeat": 0.1, "hand_back_after": 60.0 if stops else 0.5}
    with living_worker(settings, end_process=ended.append, ends=True, **numbers) as worker:
        try:
            due = begin_due(worker)
            run_batch(worker, [each for each in due if each.name == AskingPlainly.saga_name])
            for _ in range(EACH):
                assert hang.acquire(timeout=20)
            run_batch(worker, [each for each in due if each.name == AskingBriefly.saga_name])
            wait_until(lambda: worker.concurrent and not worker.concurrent._waiting, "all of them have a slot")
            stopping = [Aside(worker.stop)] if stops else []
            given_back = OutboxRow.objects.filter(holder=None, deliveries=0)
            wait_until(lambda: ended or given_back.count() == 5, "those behind are given back")
        finally:
            opened.set()
        for each in stopping:
            each.join()
    assert ended == []
    drain()
    assert set(SagaRow.objects.values_list("status", flat=True)) == {"completed"}


class Blocking(Saga[Ordered], name="beyond.blocking", version=1):
    """A body that holds up the event loop."""

    @external_step(compensate=None)
    async def act(self) -> None:
        world.act("act", self)


def test_a_log_that_nobody_reads_beside_a_loop_that_is_held_up(
    world: World, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that ends a worker which has lost touch with the database says that the loop is held up, and must not
    wait for the log."""
    opened, ended = threading.Event(), threading.Event()
    gate = Gate()
    world.plan("act", gate)
    begin(Blocking)

    class Stuck(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            opened.wait(20)

    logger, stuck = logging.getLogger("sagas.worker"), Stuck()
    monkeypatch.setattr("sagas.aio.HELD_UP", 0.1)
    with living_worker(settings, end_process=lambda _: ended.set(), lease=1.0, heartbeat=0.3) as worker:
        logger.addHandler(stuck)
        try:
            run_batch(worker, begin_due(worker))
            gate.wait()
            monkeypatch.setattr(worker.heart, "_beat", no_database)
            assert ended.wait(20)
        finally:
            logger.removeHandler(stuck)
            opened.set()
            gate.opened.set()


def no_database() -> NoReturn:
    """As a heartbeat fails that does not get through."""
    raise psycopg.OperationalError("no route to host")
