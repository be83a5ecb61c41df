"""Rows of relays and workers that are gone, or only thought to be: who takes them over, when, and who may not."""

from __future__ import annotations

import ctypes
import sys
from contextlib import closing
from typing import Any

import psycopg
import pytest
from django.core.management import call_command

from sagas import DefinitionError, Retry, Saga, external_step
from sagas.errors import ConfigurationError
from sagas.points import Point
from sagas.settings import Settings
from sagas.states import Status
from sagas.store import rows
from sagas.testing.processes import ProcessGroup
from sagas.worker import Worker
from sagas_django.models import OutboxRow, SagaRow
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Held, Room
from sagas_outbox.relay import Relay
from tests.cases.conftest import (
    Dead,
    Gate,
    Letter,
    Mailbox,
    at_gate,
    deliver,
    dying_at,
    meanwhile,
    publish_due,
    recover,
    relaying,
    sql,
    until_quiet,
    wait_until,
)
from tests.shop.sagas import Asked, Charge, Externals, Ordered, Trip
from tests.shop.world import World, world
from tests.support.stories import (
    begin,
    begin_many,
    differences,
    expire_leases,
    log_of,
    outbox,
    second_connection,
)
from tests.support.workers import begin_due, living_worker, one_worker, run_batch

pytestmark = pytest.mark.usefixtures("shop")

ROOM = [Room("default", 1000)]


class Slow(Saga[Ordered], name="cases.slow", version=1):
    """May take long, far longer than a lease."""

    @external_step(timeout=600, retry=Retry(max_attempts=3), compensate=None)
    def work(self) -> str:
        return str(world.act("work", self))


def work_with(worker: Worker) -> None:
    run_batch(worker, begin_due(worker))


def lease_was_renewed() -> bool:
    """Whether the first lease would have ended by now, and the row is still held."""
    return bool(
        sql(
            "select first_begun_at + interval '1.3 s' < clock_timestamp() and due_at > clock_timestamp()"
            " from sagas_outbox where holder like 'worker:%%'"
        )[0][0]
    )


# --- who is who -------------------------------------------------------------------------------------------------


def test_rc01_a_process_of_the_same_name_comes_back(world: World) -> None:
    """A worker is named anew each time it starts, so a heartbeat of its successor keeps nothing of the dead one's
    alive; without any bookkeeping about workers the row is taken over when its own lease ends, and the dead one's token
    is worth nothing then."""
    begin(Asked)
    with one_worker() as dead, one_worker() as successor:
        assert dead.holder != successor.holder
        [begun] = begin_due(dead)
        with dying_at(Point.AFTER_BODY), pytest.raises(Dead):
            run_batch(dead, [begun])
        sql("delete from sagas_pace")
        expire_leases()
        with closing(successor.store.connect()) as wire:
            for token in (begun.token, begun.token + 1):
                held = [(begun.id, token)]
                assert claims.heartbeat(wire, held, holder=successor.holder, lease=30, now=None) == set()
        [taken] = begin_due(successor)
        assert taken.id == begun.id and taken.token > begun.token
        with closing(dead.store.connect()) as wire:
            assert claims.heartbeat(wire, [begun.held], holder=dead.holder, lease=30, now=None) == set()
            assert claims.heartbeat(wire, [begun.held], holder=successor.holder, lease=30, now=None) == set()
            assert claims.hand_back(wire, [begun.held], now=None) == set()
            assert rows.load(wire, [begun.held], holder=dead.holder) == {}
        run_batch(successor, [taken])
    assert (Asked.get(key="a").status, world.names) == (Status.COMPLETED, ["charge", "find"])


def test_rc05_two_relays_of_the_same_host_and_process_number(world: World) -> None:
    """They are told apart all the same: the dead one's rows are claimed again, those of the live one are left to it,
    and what the dead one says when it wakes up after all changes nothing."""
    begin_many(Externals, [str(number) for number in range(10)])
    boxes = Mailbox(), Mailbox(), Mailbox()
    with relaying(boxes[0], in_flight=5) as dead, relaying(boxes[1], in_flight=5) as live:
        with dying_at(Point.AFTER_CLAIM), pytest.raises(Dead):
            dead.run_once()
        mine = set(OutboxRow.objects.filter(holder=dead.holder).values_list("id", flat=True))
        assert live.run_once() == 5
        others = {id for letter in boxes[1].letters for id, _ in letter.rows}
        assert (len(mine), len(others), mine & others) == (5, 5, set())
        sql("update sagas_outbox set due_at = clock_timestamp() where holder = %s", dead.holder)
        with relaying(boxes[2]) as third:
            assert third.run_once() == 5
        again = [held for letter in boxes[2].letters for held in letter.rows]
        assert {id for id, _ in again} == mine
        with DjangoStore("default").connect() as wire:
            assert claims.release(wire, again, holder=dead.holder, delay=0, now=None) == set()
            assert claims.unbegun(wire, sorted(mine), holder=dead.holder) == set()
    assert sum(deliver(letter) for box in boxes for letter in box.letters) == 10


# --- lease and heartbeat ----------------------------------------------------------------------------------------

SWEEPER = """
import sys
import psycopg
from sagas_outbox import claims
stolen = 0
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    print("sweeps", flush=True)
    while not connection.execute("select pg_sleep(0.1), pg_try_advisory_lock_shared(77)").fetchone()[1]:
        room = [claims.Room("default", 10)]
        stolen += len(claims.claim(connection, room, holder="relay:sweeper", window=60, begun=True, now=None))
print("stolen", stolen, flush=True)
"""


def test_rc02_a_body_that_keeps_the_interpreter_to_itself(
    world: World, shop: str, settings: Any, process_group: ProcessGroup
) -> None:
    """It runs for longer than its lease and lets go of the interpreter now and then only. The lease is renewed in
    between, so a sweeper in another process, which looks ten times a second, never gets the row. One renewal takes half
    a dozen turns at the interpreter: a lease has to be a good many times the longest that a body keeps it."""
    usleep = ctypes.PyDLL(None).usleep  # does not release the interpreter

    def hog(run: Any) -> str:
        for _ in range(135):
            usleep(20_000)
        return "done"

    world.plan("work", hog)
    saga = begin(Slow)
    with second_connection() as keeper, living_worker(settings, lease=1.8, heartbeat=0.3) as worker:
        keeper.execute("select pg_advisory_lock(77)")
        begun = begin_due(worker)
        sweeper = process_group.python("-c", SWEEPER, shop, name="sweeper")
        job = worker.take_up(begun)
        sweeper.wait_for_output("sweeps")
        worker.run(job)
        keeper.execute("select pg_advisory_unlock(77)")
        assert sweeper.wait(10) == 0 and "stolen 0" in sweeper.output()
    assert log_of(saga) == ["started", "step_done work", "completed"]
    assert len(world.calls) == 1


@pytest.mark.parametrize(("lease", "heartbeat"), [(2.0, 1.0), (2.0, 2.0), (1.0, 5.0), (30.0, 10.1)])
def test_rc02_settings_that_cannot_keep_a_lease(lease: float, heartbeat: float) -> None:
    """A heartbeat that comes too rarely to survive two failures is refused at start-up, and the message says why."""
    with pytest.raises(ConfigurationError, match="at most a third of the lease"):
        Settings(lease=lease, heartbeat=heartbeat)


def test_rc02_a_renewal_that_was_missed_after_all(world: World) -> None:
    """Then the token stops the first worker: whoever took over records, once."""
    mailbox, gate = Mailbox(), Gate("from the first")
    world.plan("charge", gate)
    saga = begin(Asked)
    with relaying(mailbox) as relay:
        [letter] = publish_due(relay, mailbox)
        with at_gate(gate, lambda: deliver(letter)):
            expire_leases()
            [other] = publish_due(relay, mailbox)
            assert deliver(other) == 1
            assert log_of(saga) == ["started", "step_done charge", "completed"]
    assert log_of(saga) == ["started", "step_done charge", "completed"]
    assert (world.names, outbox(saga), differences()) == (["charge", "find"], [], [])


def test_rc04_a_timeout_longer_than_the_lease(world: World, settings: Any) -> None:
    """A lease does not end because a body takes longer than it: it is renewed as long as the body runs, so nothing
    needs to fit `timeout`."""
    gate = Gate("done")
    world.plan("work", gate)
    saga = begin(Slow)
    with living_worker(settings, lease=1.2, heartbeat=0.2) as worker, at_gate(gate, lambda: work_with(worker)):
        wait_until(lease_was_renewed, "the end of the first lease")
        with one_worker() as other:
            assert begin_due(other) == []
    assert log_of(saga) == ["started", "step_done work", "completed"]
    assert len(world.calls) == 1


def test_rc04_two_runs_of_one_step_at_a_time(world: World) -> None:
    """Should it happen all the same, both use one idempotency key, and one of them is recorded."""
    first, second = Gate("first"), Gate("second")
    world.plan("charge", first, second)
    mailbox = Mailbox()
    saga = begin(Charge)
    with relaying(mailbox) as relay:
        deliver(*publish_due(relay, mailbox))
        [letter] = publish_due(relay, mailbox)
        with at_gate(first, lambda: deliver(letter)):
            expire_leases()
            [again] = publish_due(relay, mailbox)
            with at_gate(second, lambda: deliver(again)):
                pass
            assert log_of(saga)[-2:] == ["step_done charge", "completed"]
    assert log_of(saga).count("step_done charge") == 1
    assert {call.key for call in world.of("charge")} == {f"{saga.id}:charge:do:0"}
    assert Charge.get(key="a").steps["charge"].do.attempts == 2
    assert differences() == []


# --- everybody gone ---------------------------------------------------------------------------------------------


def test_rc03_relay_and_worker_die_with_claimed_rows(world: World) -> None:
    """Five rows in the broker, five in bodies. Processes on another host take all ten, each when its own time is over;
    nobody is asked to do anything."""
    begin_many(Externals, [str(number) for number in range(10)])
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        letters = publish_due(relay, mailbox)
    with one_worker() as worker, closing(worker.store.connect()) as wire:
        held = [held for letter in letters for held in letter.rows][:5]
        assert len(worker.begin(wire, held, published=True)) == 5
    counts = "select split_part(holder, ':', 1), count(*) from sagas_outbox group by 1 order by 1"
    assert sql(counts) == [("relay", 5), ("worker", 5)]
    [(latest,)] = sql("select max(extract(epoch from due_at - clock_timestamp()))::float8 from sagas_outbox")
    assert latest <= max(Settings().lease, Settings().publish_window)
    recover()
    assert set(SagaRow.objects.values_list("status", flat=True)) == {"completed"}
    assert differences() == []


@pytest.mark.parametrize("statement", ["claim", "begin"])
def test_rc06_a_claim_whose_answer_never_arrives(world: World, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """The rows are claimed (or begun), and the connection is cut before the client reads which: they come back when
    their time is over. At most one delivery is spent on it, and no failure."""
    begin_many(Charge, [str(number) for number in range(5)])
    mailbox = Mailbox()
    module = claims if statement == "claim" else rows
    real, cut = getattr(module, statement), []

    def answer_lost(connection: psycopg.Connection[Any], *arguments: Any, **options: Any) -> Any:
        answer = real(connection, *arguments, **options)
        if cut:
            return answer
        cut.append(connection)
        with second_connection() as killer:
            killer.execute("select pg_terminate_backend(%s)", [connection.info.backend_pid])
        return connection.execute("select 1")

    monkeypatch.setattr(module, statement, answer_lost)
    with relaying(mailbox, in_flight=5) as relay:
        if statement == "claim":
            assert relay.run_once() == 0 and mailbox.letters == []
        else:
            relay.run_once()
            rows_of_all = tuple(held for letter in mailbox.take() for held in letter.rows)
            with pytest.raises(psycopg.OperationalError):
                deliver(Letter("default", rows_of_all))
    owner = "relay" if statement == "claim" else "worker"
    assert sql("select split_part(holder, ':', 1), count(*) from sagas_outbox group by 1") == [(owner, 5)]
    assert set(OutboxRow.objects.values_list("deliveries", "failures")) == {(int(statement == "begin"), 0)}
    recover()
    assert set(SagaRow.objects.values_list("status", flat=True)) == {"completed"}
    assert world.count() == {"charge": 5}
    assert {Charge.get(key=str(number)).steps["charge"].do.attempts for number in range(5)} == {1}


MANY = 150


def test_rc14_a_relay_that_dies_in_the_middle_of_publishing(world: World) -> None:
    """What it had claimed and not sent is out again after one publish window; what it had not claimed yet was never
    held up. A relay claims no more than the workers are known to take, so that is most of it."""
    begin_many(Externals, [str(number) for number in range(MANY)])

    def die(letter: Letter) -> None:
        if len(sent.letters) == 20:
            raise Dead

    sent, second = Mailbox(refuses=die), Mailbox()
    with relaying(sent) as relay, pytest.raises(Dead):
        relay.run_once()
    held = OutboxRow.objects.filter(holder__isnull=False).count()
    assert 20 < held <= 50
    [(latest,)] = sql("select max(extract(epoch from due_at - clock_timestamp()))::float8 from sagas_outbox")
    assert latest <= Settings().publish_window
    with relaying(second) as relay, one_worker() as worker, closing(worker.store.connect()) as wire:
        assert relay.run_once() == 50  # at once
        sql("update sagas_outbox set due_at = clock_timestamp() where holder <> %s", relay.holder)
        published: set[int] = set()
        while fresh := publish_due(relay, second):
            for letter in fresh:
                published |= {id for id, _ in letter.rows}
                worker.begin(wire, letter.rows, published=True)
    assert len(published) == MANY


# --- too much care ----------------------------------------------------------------------------------------------


def test_rc15_a_sweeper_in_a_tight_loop_beside_normal_work(world: World) -> None:
    """While nothing fails, each step of each saga is published once: a row that was just inserted, published or begun
    is nobody's to recover."""
    mailbox = Mailbox()
    published: list[Held] = []
    with (
        relaying(mailbox, poll=0.001) as one,
        relaying(mailbox, poll=0.001) as other,
        one_worker() as worker,
        closing(worker.store.connect()) as wire,
        meanwhile(one.run_once, other.run_once),
    ):

        def all_done() -> bool:
            for letter in mailbox.take():
                published.extend(letter.rows)
                run_batch(worker, worker.begin(wire, letter.rows, published=True))
            return SagaRow.objects.filter(status="completed").count() == 25

        for number in range(25):
            begin(Trip, str(number))
            all_done()
        wait_until(all_done, "the end of all sagas")
    published += [held for letter in mailbox.take() for held in letter.rows]
    assert len(published) == len(set(published)) == 75
    assert world.count() == {"book": 25, "charge": 25, "confirm": 25}


def test_rc17_no_leader_and_connections_that_are_cut(world: World) -> None:
    """Two relays whose connections are ended again and again: no session lock is needed for anything, and each effect
    happens once."""
    begin_many(Externals, [str(number) for number in range(60)])
    mailbox = Mailbox()
    pids: list[int] = []
    cuts = 0

    def connect() -> psycopg.Connection[Any]:
        connection = DjangoStore("default").connect()
        pids.append(connection.info.backend_pid)
        return connection

    with (
        relaying(mailbox, connect=connect, poll=0.01, heartbeat=0.01) as one,
        relaying(mailbox, connect=connect, poll=0.01, heartbeat=0.01) as other,
        second_connection() as killer,
        meanwhile(one.run_once, other.run_once),
    ):

        def all_done() -> bool:
            nonlocal cuts
            while pids and cuts < 10:
                cuts += killer.execute("select pg_terminate_backend(%s)", [pids.pop()]).fetchone() is not None
            assert killer.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone() == (0,)
            if letters := mailbox.take():
                deliver(*letters, goes_on=True)
            return cuts == 10 and SagaRow.objects.filter(status="completed").count() == 60

        wait_until(all_done, "the end of all sagas")
    [(most,)] = sql("select max(attempt) from sagas_log")
    assert (most, differences()) == (1, [])


def test_rc18_a_pass_that_takes_longer_than_the_interval(world: World) -> None:
    """One pass at a time: while a publish hangs nothing else is begun, however often the interval has gone by and
    however many wake-ups there were; the next pass comes after the end of this one."""
    begin_many(Externals, ["a", "b"])
    gate, at_work, most = Gate(), [], []

    def slow(letter: Letter) -> None:
        at_work.append(letter)
        most.append(len(at_work))
        if len(most) == 1:
            gate(None)
        at_work.remove(letter)

    mailbox, passes = Mailbox(refuses=slow), []
    with relaying(mailbox, poll=0.01) as relay, second_connection() as other:
        once = relay.run_once
        relay.run_once = lambda: passes.append(1) or once()  # type: ignore[assignment,func-returns-value]
        with at_gate(gate, relay.run):
            before = len(passes)
            for number in range(15):
                begin(Externals, f"more-{number}")
                relay._stir.set()
                other.execute("select pg_sleep(0.005)")
            assert (len(passes), len(most)) == (before, 1)
            gate.opened.set()
            wait_until(lambda: len(mailbox.letters) == 17, "all messages")
            relay.stop()
    assert set(most) == {1}


# --- no row, and no limit ---------------------------------------------------------------------------------------


def test_rc11_a_saga_without_any_work_is_found_and_mended(world: World) -> None:
    """Neither finished nor parked, and nothing in the outbox: `verify` names it, `rebuild` makes the row again, and the
    saga goes on where it was. Nobody else waited for it."""
    mailbox = Mailbox()
    begin(Trip, "lost")
    with relaying(mailbox) as relay:
        for _ in range(2):
            deliver(*publish_due(relay, mailbox))
        assert log_of(Trip.get(key="lost").id)[-1] == "step_done charge"
        sql("delete from sagas_outbox")
        begin(Trip, "next")
        until_quiet(relay, mailbox)
    assert Trip.get(key="next").status == Status.COMPLETED
    [found] = differences()
    assert "'lost'" in found and "sagas rebuild" in found and "confirm" in found
    call_command("sagas", "rebuild", "test.trip:lost", stdout=sys.stdout)
    recover()
    assert (Trip.get(key="lost").status, differences()) == (Status.COMPLETED, [])
    assert world.count() == {"book": 2, "charge": 2, "confirm": 2}


@pytest.mark.parametrize("timeout", [0, -1, -0.5, 1e12, float("inf"), float("nan"), True, "10"])
def test_rc13_a_timeout_that_means_nothing_is_refused(timeout: Any) -> None:
    """When the class is created, with a message that names the step; for a step and for a compensation."""
    with pytest.raises(DefinitionError, match=r"'act'.*timeout"):

        class Wrong(Saga[Ordered], name="cases.wrong_timeout", version=1):
            @external_step(timeout=timeout, compensate=None)
            def act(self) -> None: ...

    with pytest.raises(DefinitionError, match="timeout"):

        class WrongUndo(Saga[Ordered], name="cases.wrong_undo_timeout", version=1):
            @external_step
            def act(self) -> None: ...

            @act.compensate(timeout=timeout)
            def undo(self, result: None) -> None: ...


class Unlimited(Saga[Ordered], name="cases.unlimited", version=1):
    """Says nothing about its time."""

    @external_step(compensate=None)
    def work(self) -> str:
        return str(world.act("work", self))


class Limited(Saga[Ordered], name="cases.limited", version=1):
    """Has a time of its own."""

    @external_step(timeout=0.3, compensate=None)
    def work(self) -> str:
        return str(world.act("work", self))


@pytest.mark.parametrize(("saga", "setting", "limit"), [(Unlimited, 0.2, 0.2), (Limited, 600.0, 0.3)])
def test_rc13_no_timeout_is_the_timeout_of_the_settings(
    world: World, settings: Any, saga: type[Saga[Ordered]], setting: float, limit: float
) -> None:
    """There is one limit, and it is the worker's: past it and the grace the process is ended. Until it is gone the
    lease is renewed, so nobody rescues a step that still runs."""
    gate, ended = Gate("done"), []
    world.plan("work", gate)
    begin(saga)
    with (
        living_worker(
            settings, end_process=ended.append, ends=True, timeout=setting, grace=0.1, lease=1.2, heartbeat=0.2
        ) as worker,
        at_gate(gate, lambda: work_with(worker)),
    ):
        wait_until(lambda: ended, "the end of the process")
        assert f"outlived its timeout of {limit} s" in ended[0]
        wait_until(lease_was_renewed, "the end of the first lease")
        with one_worker() as other:
            assert begin_due(other) == []


def test_rc13_what_follows_a_body_is_under_its_timeout_too(world: World, settings: Any) -> None:
    """To end what it left open in its connections may hang as well as the body, and holds its lease as long."""
    gate, ended = Gate(), []

    class Hanging(DjangoStore):
        def after_body(self) -> None:
            gate(None)

    begin(Limited)
    numbers = {"timeout": 0.2, "grace": 0.1}
    with (
        living_worker(settings, store=Hanging("default"), end_process=ended.append, ends=True, **numbers) as worker,
        at_gate(gate, lambda: work_with(worker)),
    ):
        wait_until(lambda: ended, "the end of the process")
    assert "outlived its timeout of 0.3 s" in ended[0]


def test_rc13_the_control_a_body_within_its_time_is_left_alone(world: World, settings: Any) -> None:
    """The same worker, a body that ends in time."""
    ended: list[str] = []
    begin(Limited)
    with living_worker(settings, end_process=ended.append, ends=True, timeout=0.2, grace=0.1) as worker:
        work_with(worker)
    assert (ended, Limited.get(key="a").status) == ([], Status.COMPLETED)


def test_rc13_relays_know_no_timeout(world: World) -> None:
    """What a relay takes over is decided by the lease alone; it is told nothing of steps."""
    assert "timeout" not in Relay.__init__.__annotations__
    begin(Slow)
    sql("update sagas_outbox set deliveries = 1, holder = 'worker:x', due_at = clock_timestamp() + interval '1 s'")
    with relaying(Mailbox()) as relay:
        assert relay.run_once() == 0
        sql("update sagas_outbox set due_at = clock_timestamp()")
        assert relay.run_once() == 1
