"""`async def` external steps in the embedded worker: many at the same time, with the guarantees of all others."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction

from sagas import Refused, Saga
from sagas.embedded import Embedded
from sagas.points import listen
from sagas_django.models import OutboxRow, SagaRow
from sagas_django.store import DjangoStore
from tests.shop.awaiting import Asked, Blocking, Effects, Limited, Mixed, Own, Plain, Slow, Twice
from tests.shop.models import Booking
from tests.shop.world import World
from tests.support.slow_server import SlowServer
from tests.support.stories import Aside, begin, dedupe, differences, drain, entries, expire_leases, log_of, outbox
from tests.support.workers import begin_due, one_worker, run_batch

pytestmark = pytest.mark.usefixtures("shop")


@pytest.fixture
def server() -> Iterator[SlowServer]:
    """The other side."""
    with SlowServer() as running:
        yield running


def begin_slow(many: int, server: SlowServer, wait: float | str) -> None:
    with transaction.atomic():
        for number in range(many):
            Slow.start(Asked(server.port, wait), key=str(number))


def test_hundreds_of_slow_calls_at_the_same_time(server: SlowServer) -> None:
    """300 calls of a second each take one process a fiftieth of the time they would take one after the other."""
    begin_slow(300, server, 1.0)
    began = time.monotonic()
    drain(concurrency=2)
    took = time.monotonic() - began
    assert took < 300 / 50, f"{took:.1f} s"
    assert len(server.calls) == sum(server.calls.values()) == 300
    assert server.most == 200
    assert set(SagaRow.objects.values_list("status", flat=True)) == {"completed"}
    assert not OutboxRow.objects.exists()


def test_the_limit_is_a_setting(server: SlowServer, settings: Any) -> None:
    """No more than ASYNC_CONCURRENCY bodies run at the same time; what has no slot is not begun."""
    settings.SAGAS = {"WAKE": False, "ASYNC_CONCURRENCY": 7}
    begin_slow(30, server, "gate")
    worker = Aside(lambda: drain(concurrency=1, check=False))
    server.wait_for_calls(7)
    assert OutboxRow.objects.filter(deliveries__gt=0).count() == 7
    server.open_gate()
    worker.join()
    assert (len(server.calls), server.most) == (30, 7)


def test_neither_kind_waits_for_the_other(world: World, server: SlowServer) -> None:
    """While all calls hang, plain steps of the same queue go on; while the only thread is busy, calls go on."""
    gate = threading.Event()
    world.plan("act", lambda run: gate.wait(20), saga="hangs")
    begin_slow(20, server, "gate")
    begin(Plain, "first", Asked())
    worker = Aside(lambda: drain(concurrency=1, check=False))
    server.wait_for_calls(20)
    begin(Plain, "hangs", Asked())
    wait_for(lambda: [call.saga for call in world.of("act")] == ["first", "hangs"])
    begin(Slow, "late", Asked(server.port, "gate"))
    server.wait_for_calls(21)
    server.open_gate()
    gate.set()
    worker.join()
    assert differences() == []


def test_a_saga_of_both_kinds(world: World) -> None:
    """Steps that are awaited and steps that are not follow each other, conditions included, each once."""
    run = begin(Mixed, "a", Asked())
    drain()
    assert world.names == ["charge", "tell", "ship"]
    assert [entry.data["result"] for entry in entries(run) if entry.step == "ship" and "result" in entry.data] == [
        f"sent for charge of {Booking.objects.get(step='book').pk}"
    ]
    assert log_of(run)[-1] == "completed"


def test_undo_of_both_kinds(world: World) -> None:
    """A refusal turns the saga back through compensations of both kinds."""
    world.plan("ship", Refused("no"))
    run = begin(Mixed, "a", Asked())
    drain()
    assert world.names == ["charge", "tell", "ship", "untell", "refund", "unbook"]
    assert not Booking.objects.exists()
    assert log_of(run)[-1] == "compensated"


def test_unknown_is_asked_about(world: World) -> None:
    """An error leaves the outcome unknown; the awaited `resolve` is asked, also that of a step that is not awaited."""
    world.plan("charge", ConnectionError("no reply"))
    world.plan("find_charge", "found")
    world.plan("tell", ConnectionError("no reply"))
    begin(Mixed, "a", Asked())
    drain()
    assert world.names == ["charge", "find_charge", "tell", "find_tell", "tell", "ship"]


def test_a_body_past_its_timeout_is_cancelled(world: World, server: SlowServer) -> None:
    """It is told by CancelledError, its connection is closed, and its outcome is unknown, as after any exception."""
    run = begin(Limited, "a", Asked(server.port, "gate"))
    drain(check=False)
    assert world.names == ["charge", "cancelled"]
    with server.arrived:
        assert server.arrived.wait_for(lambda: server.hung_up == 1, 10)
    [failed] = [entry for entry in entries(run) if entry.kind == "step_failed"]
    assert failed.data["error"]["type"] == "TimeoutError"
    assert "0.2 s, its timeout" in failed.data["error"]["message"]
    assert Limited.get(key="a").status == "parked"


def test_an_answer_in_spite_of_the_cancellation_counts(world: World) -> None:
    """A body that has its answer when it is cancelled may still return it: the truth is better than unknown."""

    async def late(run: object) -> str:
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            return "after all"
        return "never"

    before = Limited.charge.body
    Limited.charge.body = late
    try:
        begin(Limited, "a", Asked())
        drain()
    finally:
        Limited.charge.body = before
    assert Limited.get(key="a").status == "completed"


def test_effects_and_progress(world: World) -> None:
    """Effects are remembered one by one, also those that run at the same time; progress reaches the next attempt."""
    world.plan("end", ConnectionError("no reply"))
    run = begin(Effects, "a", Asked())
    drain()
    assert world.count() == {"begin": 2, "charge": 2, "end": 2}
    assert [call.argument for call in world.of("begin")] == [None, {"paid": 2}]
    assert dedupe(run)["pay/one:do:0"] == dedupe(run)["pay/two:do:0"] == "done"
    assert sorted(call.key for call in world.of("charge")) == [f"{run.id}:pay/one:do:0", f"{run.id}:pay/two:do:0"]


def test_what_would_hold_up_the_loop_is_refused(world: World) -> None:
    """`effect()` in an `async def` names its twin."""
    run = begin(Blocking, "a", Asked())
    drain()
    [done] = [entry for entry in entries(run) if entry.kind == "step_done"]
    assert done.data["result"].startswith("ConfigurationError: ") and "await self.aeffect(...)" in done.data["result"]
    assert dedupe(run) == {}


def test_contexts_and_the_orm(world: World) -> None:
    """Bodies share no context; Django's async ORM works, and its one connection is not left in a transaction."""
    with transaction.atomic():
        runs = [Own.start(Asked(), key=str(number)) for number in range(50)]
    before = connections_to_database()
    drain()
    said = {entry.data["result"] for run in runs for entry in entries(run) if entry.kind == "step_done"}
    assert said == {f"nobody {number}" for number in range(50)}
    assert Booking.objects.count() == 50
    assert connections_to_database(state="idle in transaction") == 0
    assert connections_to_database() <= before + 1


def test_a_transaction_that_a_body_left_open(world: World) -> None:
    """It does not outlive the body on the connection that the async ORM shares, and the next body writes for good."""

    async def careless(run: Saga[Asked]) -> str:
        await sync_to_async(transaction.set_autocommit)(False)
        await Booking.objects.acreate(saga=str(run.key), step="lost")
        return "done"

    before = Own.act.body
    Own.act.body = careless
    try:
        begin(Own, "careless", Asked())
        drain()
    finally:
        Own.act.body = before
    assert connections_to_database(state="idle in transaction") == 0
    begin(Own, "careful", Asked())
    drain()
    assert list(Booking.objects.values_list("saga", flat=True)) == ["careful"]


def test_a_body_that_raises_generator_exit_keeps_neither_its_slot_nor_its_row(world: World) -> None:
    """Which would look like the end of the process: the worker goes on, and the row comes again with its lease."""

    async def odd(run: Saga[Asked]) -> str:
        Own.act.body = before
        raise GeneratorExit

    before = Own.act.body
    Own.act.body = odd
    try:
        saga = begin(Own, "odd", Asked())
        worker = Aside(lambda: drain(check=False))
        worker.join(20)
    finally:
        Own.act.body = before
    expire_leases()
    drain()
    assert log_of(saga)[-1] == "completed"


def test_connections_and_threads_stay_few(world: World, server: SlowServer) -> None:
    """200 bodies under way need no more connections and threads than 20, and nothing of them is left."""
    counted = []
    for many in (20, 200):
        server_calls = sum(server.calls.values())
        with transaction.atomic():
            for number in range(many):
                Slow.start(Asked(server.port, "gate"), key=f"{many}-{number}")
        worker = Aside(lambda: drain(concurrency=2, check=False))
        server.wait_for_calls(many)
        counted.append((connections_to_database(), threading.active_count()))
        server.open_gate()
        worker.join()
        assert sum(server.calls.values()) == server_calls + many
        server._loop.call_soon_threadsafe(server._gate.clear)
    assert counted[1][0] <= counted[0][0] + 1
    assert counted[1][1] <= counted[0][1] + 8
    assert not [each.name for each in threading.enumerate() if each.name.startswith("sagas-async")]


def test_stop_lets_end_what_runs(world: World, server: SlowServer, settings: Any) -> None:
    """What runs is finished and recorded, what has not begun is as it was."""
    settings.SAGAS = {"WAKE": False, "ASYNC_CONCURRENCY": 5}
    begin_slow(8, server, "gate")
    worker = Embedded(DjangoStore("default"), concurrency=1)
    running = Aside(worker.run)
    server.wait_for_calls(5)
    worker.stop()
    assert running.runs()
    server.open_gate()
    running.join()
    assert sorted(SagaRow.objects.values_list("status", flat=True)) == ["completed"] * 5 + ["running"] * 3
    assert set(OutboxRow.objects.values_list("holder", "deliveries")) == {(None, 0)}


def test_rows_without_a_slot_are_given_back(server: SlowServer, settings: Any) -> None:
    """What came in one message with them runs; they go to other workers as if they had not been begun."""
    settings.SAGAS = {"WAKE": False, "ASYNC_CONCURRENCY": 2, "HAND_BACK_AFTER": 0.2}
    begin_slow(6, server, "gate")
    with one_worker() as worker:
        worker.start()
        run_batch(worker, begin_due(worker))
        server.wait_for_calls(2)
        wait_for(lambda: OutboxRow.objects.filter(holder=None, deliveries=0).count() == 4)
        server.open_gate()
    assert sum(server.calls.values()) == SagaRow.objects.filter(status="completed").count() == 2


def test_what_may_have_ended_its_worker_runs_alone(server: SlowServer) -> None:
    """After one death all run together again; who was there twice runs alone, and cannot take others with it."""
    begin_slow(5, server, "gate")
    die_with_all()
    worker = Aside(lambda: drain(check=False))
    server.wait_for_calls(5)
    server.open_gate()
    worker.join()
    begun = sum(server.calls.values())
    with transaction.atomic():
        for number in range(5):
            Slow.start(Asked(server.port, 0.02), key=f"again-{number}")
    die_with_all()
    die_with_all()
    server.most = 0
    drain()
    assert (sum(server.calls.values()) - begun, server.most) == (5, 1)
    assert set(SagaRow.objects.values_list("status", flat=True)) == {"completed"}


def die_with_all() -> None:
    """As if a worker had begun everything that is due and died of it."""
    with one_worker() as worker:
        assert begin_due(worker)
    expire_leases()


def test_a_lease_that_passed_to_another(world: World, server: SlowServer) -> None:
    """What comes after another worker took over is not recorded as a transition, only remembered."""
    run = begin(Slow, "a", Asked(server.port, "gate"))
    worker = Aside(lambda: drain(check=False))
    server.wait_for_calls(1)
    expire_leases()
    other = Aside(lambda: drain(check=False))
    server.wait_for_calls(2)
    server.open_gate()
    other.join()
    worker.join()
    assert [kind for kind in log_of(run) if kind == "step_done charge"] == ["step_done charge"]
    assert outbox(run) == []


def test_a_body_that_blocks_the_loop_is_reported(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The alarm names the saga and step, and shows the line."""
    gate = threading.Event()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "event loop" in record.getMessage():
                gate.set()

    logger, heard = logging.getLogger("sagas.worker"), Heard()
    logger.addHandler(heard)
    try:
        world.plan("act", lambda run: gate.wait(20))
        begin(Blocking, "a", Asked())
        drain()
    finally:
        logger.removeHandler(heard)
    [said] = [record.getMessage() for record in caplog.records if "event loop" in record.getMessage()]
    assert "act" in said and "gate.wait" in said and "asyncio.to_thread" in said


def test_points_of_the_fault_runner(world: World) -> None:
    """A process can be stopped at every named point on the way of an `async def` body as well."""
    seen: list[str] = []
    listen(lambda point, detail: seen.append(f"{point} {detail}"))
    try:
        begin(Twice, "a", Asked())
        drain()
    finally:
        listen(None)
    assert seen == [
        "worker.after_begin one:do", "worker.before_body one:do", "worker.after_body one:do",
        "worker.before_record one:do", "worker.after_record one:do", "worker.between_steps two:do",
        "worker.before_body two:do", "worker.after_body two:do", "worker.before_record two:do",
        "worker.after_record two:do",
    ]  # fmt: skip


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def connections_to_database(state: str | None = None) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from pg_stat_activity where datname = current_database()"
            " and state = coalesce(%s, state) and pid <> pg_backend_pid()",
            [state],
        )
        return int(cursor.fetchone()[0])


def test_workers_of_a_process_share_the_loop_to_their_ends(world: World) -> None:
    """Who stops twice, or goes on after that, takes it from nobody, and nothing of it is left in the end."""

    async def answer() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    with one_worker() as first, one_worker() as second:
        assert first.concurrent is not None and second.concurrent is not None
        loop = first.concurrent.wait_for("a", 5.0, answer())
        assert second.concurrent.wait_for("b", 5.0, answer()) is loop
        first.concurrent.stop()
        first.concurrent.stop()
        assert second.concurrent.wait_for("b", 5.0, answer()) is loop
        assert first.concurrent.wait_for("a", 5.0, answer()) is loop
    assert loop.is_closed()
    assert not [each.name for each in threading.enumerate() if each.name.startswith("sagas-async")]


def test_a_wait_past_its_timeout_ends_what_it_waited_for(world: World) -> None:
    """Else it would go on beside the next attempt of the same."""
    cancelled = threading.Event()

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with one_worker() as worker:
        assert worker.concurrent is not None
        with pytest.raises(TimeoutError, match="its timeout"):
            worker.concurrent.wait_for("a", 0.05, waits())
        assert cancelled.wait(5)
