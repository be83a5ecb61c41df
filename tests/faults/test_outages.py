"""Shutdowns, freezes and lost connections, of real processes at chosen moments."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from sagas import Saga
from sagas.points import Point
from sagas.testing.proxy import BlackHole, Pass, Proxy, Reset
from sagas.testing.servers import Postgres, postgres
from tests.faults.app.sagas import AskedOrder, KeyedOrder, Ordered, parcel
from tests.faults.conftest import SceneMaker, migrate
from tests.faults.scenario import Scenario
from tests.faults.scene import Scene, drain
from tests.faults.sight import View, wait_until
from tests.settings import database_from_url

CALM = {"FAULTS_LEASE": "12"}  # where a lease must not end although the server is away for a moment


def undisturbed(saga: type[Saga[Ordered]], *, attempt_of: str = "") -> View:
    """How an order ends; `attempt_of` names the step that took a second attempt."""
    view = Scenario(saga=saga, back=False, work="reserve:do", place=Point.AFTER_BEGIN).at_end()
    log = [replace(line, attempt=2) if line.step == attempt_of else line for line in view.log]
    return replace(view, log=log)


def asked() -> View:
    """How an order ends whose charge was found by asking the bank."""
    view = undisturbed(AskedOrder)
    log = [replace(line, source="resolve") if line.step == "charge" else line for line in view.log]
    return replace(view, log=log)


def check(scene: Scene, view: View, *, charged: int = 1) -> None:
    """The order ended as it should, and the bank was asked to charge it so many times."""
    assert scene.view() == view
    assert scene.findings() == []
    assert scene.money() == {"order": "10.00", "parcel": "5.00"}
    assert scene.seen() == {"charge:do": charged, "ship:do": 1}


def hold(scene: Scene, *orders: str, when: str, on: str = "charge") -> None:
    """Let the bank hold the next request for the order (or others)."""
    for order in orders or (scene.order,):
        scene.bank.script({"fault": "hold", "on": on, "order": order, "when": when})


# --- SIGTERM ---


def sigterm_drains(new_scene: SceneMaker) -> None:
    """SIGTERM: the running body is finished and recorded, what waits is handed back at once, nothing stays held."""
    with new_scene(KeyedOrder, FAULTS_HAND_BACK_AFTER="60") as scene:
        worker = scene.worker("worker", concurrency=1)
        _show_that_it_is_quick(scene)
        orders = [f"{scene.order}-{number}" for number in range(6)]
        hold(scene, *orders, when="after")
        scene.start(*orders)
        held = wait_until(lambda: [a for a in scene.bank.in_flight() if a["order"] in orders], "a charge")[0]["order"]
        begun = "select count(*) from sagas_outbox where holder is not null"
        assert scene.fetch(begun)[0][0] > 1, "the worker took one row only"

        worker.terminate()
        wait_until(lambda: scene.fetch(begun)[0][0] == 1, "the waiting rows to be handed back")
        assert worker.poll() is None, "the running body was not waited for"
        scene.bank.release(order=held)
        assert worker.wait(10) == 0

        assert scene.fetch(begun)[0][0] == 0
        assert scene.fetch("select 1 from sagas_outbox where deliveries > 0") == []
        for order in orders:
            charged = ("step_done", "charge") in scene.kinds(order)
            assert charged == (order == held)
        heir = scene.worker("heir")
        _release_until_ended(scene, orders)
        drain(heir)
        assert scene.findings() == []
        attempts = scene.fetch("select distinct attempt from sagas_log where step is not null")
        assert attempts == [(1,)], "handing back is no attempt"
        assert [scene.money(order) for order in orders] == [{"order": "10.00", "parcel": "5.00"}] * len(orders)


def _show_that_it_is_quick(scene: Scene) -> None:
    """Let the worker measure the step until it takes several at once; on a busy machine its first one may be slow."""
    for number in range(50):
        order = f"{scene.order}-quick-{number}"
        scene.start(order)
        scene.wait_until_ended(order)
        quick = "select 1 from sagas_pace where step = 'charge' and direction = 'do' and mean < 0.005"
        if scene.fetch(quick):
            return
    raise AssertionError("50 charges, and none of the last took less than 5 ms")


def _release_until_ended(scene: Scene, orders: list[str]) -> None:
    def over() -> bool:
        for order in orders:
            scene.bank.release(order=order)
        return all(scene.has_ended(order) for order in orders)

    wait_until(over, "the end of all sagas")


# --- a frozen worker ---


def frozen_keyed(new_scene: SceneMaker) -> None:
    """A worker frozen for longer than its lease wakes up: no second record, its late answer is kept."""
    with new_scene(KeyedOrder) as scene:
        _freeze_and_thaw(scene, "charge:do")
        end = replace(undisturbed(KeyedOrder, attempt_of="charge"), dedupe={"charge:do": "done"})
        check(scene, end, charged=2)


def frozen_asked(new_scene: SceneMaker) -> None:
    """The same with a bank that ignores keys: it is asked, and charges once."""
    with new_scene(AskedOrder) as scene:
        scene.bank.script({"fault": "ignore_keys", "order": scene.order})
        _freeze_and_thaw(scene, "charge:do")
        check(scene, replace(asked(), dedupe={"charge:do": "done"}))


def frozen_then_cancelled(new_scene: SceneMaker) -> None:
    """The order is cancelled meanwhile: the late answer is kept and does not revive what was undone."""
    with new_scene(AskedOrder, FAULTS_LEASE="6") as scene:  # the cancel is to be applied before the lease ends
        _freeze_and_thaw(scene, "charge:do", meanwhile=scene.cancel)
        _check_cancelled(scene)


def killed_and_cancelled(new_scene: SceneMaker) -> None:
    """A cancel that waited beside work whose lease has ended is applied before that work goes on."""
    with new_scene(AskedOrder) as scene:
        scene.start()
        victim = scene.worker("victim", fault=f"{Point.BEFORE_RECORD}@charge:do:kill")
        scene.wait_for_hit(victim)
        assert victim.wait(10) == -9
        scene.cancel()
        wait_until(lambda: scene.fetch("select 1 from sagas_outbox having max(due_at) < clock_timestamp()"), "due")
        _finish(scene)
        _check_cancelled(scene)


def _check_cancelled(scene: Scene) -> None:
    view = scene.view()
    kinds = ["started", "step_done", "cancel_requested", "step_done"]
    kinds += ["compensating", "undo_done", "undo_done", "cancelled"]
    assert [line.kind for line in view.log][: len(kinds)] == kinds  # a late answer may reopen and settle it
    assert view.status == "cancelled"
    assert view.dedupe["charge:do"] == "closed"
    assert (view.outbox, view.reservations, view.movements) == ([], 0, ["reserve", "release"])
    assert scene.findings() == []
    assert scene.money() == {"order": "0.00"}


def frozen_in_refund(new_scene: SceneMaker) -> None:
    """The same while compensating: the refund happens once."""
    with new_scene(KeyedOrder) as scene:
        scene.bank.script({"fault": "refuse", "order": parcel(scene.order)})
        _freeze_and_thaw(scene, "charge:undo")
        end = Scenario(saga=KeyedOrder, back=True, work="charge:undo", place=Point.BEFORE_BODY)
        dedupe = {"charge:do": "closed", "charge:undo": "done"}
        assert scene.view() == replace(end.at_end(), dedupe=dedupe)
        assert scene.findings() == []
        assert scene.money() == {"order": "0.00"}


def frozen_in_body(new_scene: SceneMaker) -> None:
    """Frozen while a body waits for the bank: it ends itself, or its late answer is kept; the saga is right."""
    with new_scene(KeyedOrder) as scene:
        hold(scene, when="after")
        scene.start()
        victim = scene.worker("victim")
        assert scene.wait_for_arrival()["landed"]
        victim.pause()
        scene.release()  # the answer lies in its socket
        _finish(scene)
        before = scene.view()
        victim.resume()
        wait_until(lambda: victim.poll() is not None or scene.view().dedupe, "what becomes of the frozen worker")
        after = scene.view()
        if victim.poll() is None:
            assert after.dedupe == {"charge:do": "done"}
            drain(victim)
        else:
            assert "the lease could not be renewed" in victim.output()
        assert replace(after, dedupe={}) == before
        check(scene, replace(undisturbed(KeyedOrder, attempt_of="charge"), dedupe=after.dedupe), charged=2)


def _freeze_and_thaw(scene: Scene, work: str, meanwhile: Callable[[], None] = lambda: None) -> None:
    """A worker stands still with an answer that it has not recorded, for longer than its lease; another takes over."""
    scene.start()
    victim = scene.worker("victim", fault=f"{Point.BEFORE_RECORD}@{work}:pause")
    scene.wait_for_hit(victim)
    victim.pause()
    meanwhile()
    _finish(scene)
    before = scene.view()
    victim.resume()
    scene.resume()
    query = "select 1 from sagas_dedupe where key like %s and response is not null"
    wait_until(lambda: scene.fetch(query, f"%:{work}:0"), "the late answer in the dedupe table")
    wait_until(lambda: scene.has_ended() and not scene.view().outbox, "the saga to end, if the answer reopened it")
    after = scene.view()
    assert after.status == before.status
    assert after.log[: len(before.log)] == before.log
    drain(victim)


def _finish(scene: Scene) -> None:
    heir = scene.worker("heir")
    scene.wait_until_ended()
    drain(heir)


def refused_pivot_in_doubt(new_scene: SceneMaker) -> None:
    """The carrier refuses after a worker died over it: whether the first request still lands nobody knows. Parked."""
    with new_scene(AskedOrder) as scene:
        scene.bank.script({"fault": "refuse", "order": parcel(scene.order)})
        scene.start()
        victim = scene.worker("victim", fault=f"{Point.BEFORE_BODY}@ship:do:kill")
        scene.wait_for_hit(victim)
        assert victim.wait(10) == -9
        heir = scene.worker("heir")
        wait_until(lambda: scene.status() == "parked", "the saga to be parked")
        drain(heir)
        assert (scene.view().outbox, scene.findings()) == ([], [])
        assert scene.money() == {"order": "10.00"}


# --- Postgres goes away ---


def postgres_killed_in_external_body(new_scene: SceneMaker) -> None:
    """kill -9 of Postgres while a body runs: the same worker records its answer when the server is back."""
    with _own_server(new_scene, KeyedOrder, **CALM) as (server, scene):
        hold(scene, when="after")
        scene.start()
        worker = scene.worker("worker")
        scene.wait_for_arrival()
        scene.disconnect()
        server.kill()
        scene.release()
        worker.wait_for_output("recording failed, trying again")
        server.restart()
        scene.wait_until_ended()
        check(scene, undisturbed(KeyedOrder))
        drain(worker)


def postgres_killed_in_local_body(new_scene: SceneMaker) -> None:
    """kill -9 of Postgres inside a local step: it did not happen, and is done again."""
    with _own_server(new_scene, KeyedOrder) as (server, scene):
        scene.start()
        worker = scene.worker("worker", fault=f"{Point.AFTER_BODY}@reserve:do:pause")
        scene.wait_for_hit(worker)
        scene.disconnect()
        server.kill()
        server.restart()
        assert scene.view().movements == []
        scene.resume()
        scene.wait_until_ended()
        check(scene, undisturbed(KeyedOrder, attempt_of="reserve"))
        drain(worker)


def postgres_away_longer_than_a_lease(new_scene: SceneMaker) -> None:
    """A worker that cannot renew its lease ends itself before the lease does; another asks the bank and goes on."""
    with _own_server(new_scene, AskedOrder) as (server, scene):
        scene.bank.script({"fault": "ignore_keys", "order": scene.order})
        hold(scene, when="after")
        scene.start()
        worker = scene.worker("worker")
        scene.wait_for_arrival()
        scene.disconnect()
        server.kill()
        assert worker.wait(10) == -9
        assert "the lease could not be renewed" in worker.output()
        server.restart()
        heir = scene.worker("heir")
        scene.wait_until_ended()
        scene.release()
        check(scene, asked())
        drain(heir)


@contextmanager
def _own_server(
    new_scene: SceneMaker, saga: type[Saga[Ordered]], **settings: str
) -> Iterator[tuple[Postgres, Scene]]:  # fmt: skip
    with postgres(private=True, fsync=False) as server, tempfile.TemporaryDirectory() as directory:
        url = server.create_database("faults")
        migrate(url, Path(directory))
        with new_scene(saga, url=url, **settings) as scene:
            yield server, scene


# --- connections are cut ---


def connections_cut_while_idle(new_scene: SceneMaker) -> None:
    """Every connection of an idle worker is cut: it goes on with new ones."""
    with new_scene(KeyedOrder) as scene:
        worker = scene.worker("worker", concurrency=1)
        before = f"{scene.order}-before"
        scene.start(before)
        scene.wait_until_ended(before)  # all its connections are open now
        wait_until(lambda: _cut(scene) >= 4, "the worker's connections: claims, records, leases, wake-ups, local steps")
        scene.start()
        scene.wait_until_ended()
        assert scene.findings() == []
        assert scene.seen() == {"charge:do": 1, "ship:do": 1}
        assert scene.view().log == undisturbed(KeyedOrder).log, "a dead connection is no attempt"
        assert scene.view().movements == ["reserve", "reserve"]
        drain(worker)


def cut_in_record_of_external_step(new_scene: SceneMaker) -> None:
    """The connection is cut inside the record statement: it is written again, once."""
    with new_scene(KeyedOrder, **CALM) as scene:
        _cut_in_record(scene, "charge:do")
        check(scene, undisturbed(KeyedOrder))


def cut_in_record_of_local_step(new_scene: SceneMaker) -> None:
    """The connection is cut inside a local step's transaction: nothing of it happened, it is done again."""
    with new_scene(KeyedOrder) as scene:
        _cut_in_record(scene, "reserve:do")
        check(scene, undisturbed(KeyedOrder, attempt_of="reserve"))


def _cut_in_record(scene: Scene, work: str) -> None:
    scene.start()
    worker = scene.worker("worker", fault=f"{Point.BEFORE_RECORD}@{work}:pause")
    scene.wait_for_hit(worker)
    with psycopg.connect(scene.url) as blocker:
        blocker.execute("lock table sagas_log in exclusive mode")
        scene.resume()
        wait_until(lambda: _cut(scene, "wait_event_type = 'Lock'") == 1, "the record to wait for the log")
    scene.wait_until_ended()
    drain(worker)


def _cut(scene: Scene, which: str = "true") -> int:
    """Cut connections of the scene's processes; returns how many."""
    others = "datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
    return len(scene.fetch(f"select pg_terminate_backend(pid, 5000) from pg_stat_activity where {others} and {which}"))


def acknowledgement_of_record_lost(new_scene: SceneMaker) -> None:
    """The record is committed and nobody hears of it: the log is looked at, the worker goes on, nothing is twice."""
    with new_scene(KeyedOrder, **CALM) as scene, _proxy(scene) as (proxy, url):
        worker = scene.worker("worker", fault=f"{Point.BEFORE_RECORD}@charge:do#3:pause", url=url)
        for before in (f"{scene.order}-1", f"{scene.order}-2"):
            scene.start(before)
            scene.wait_until_ended(before)  # by now the connection is open and the statement prepared
        scene.start()
        scene.wait_for_hit(worker)
        proxy.fault = BlackHole(only_answers=True)
        scene.resume()
        scene.wait_for_line("step_done", "charge")
        proxy.fault = Reset()
        proxy.fault = Pass()
        scene.wait_until_ended()
        view, wanted = scene.view(), undisturbed(KeyedOrder)
        assert view == replace(wanted, movements=3 * wanted.movements, reservations=3)
        assert scene.findings() == []
        assert scene.seen() == {"charge:do": 1, "ship:do": 1}
        drain(worker)


def acknowledgement_of_local_commit_lost(new_scene: SceneMaker) -> None:
    """A local step is committed and nobody hears of it: it is not run again, what follows is taken over."""
    with new_scene(KeyedOrder) as scene, _proxy(scene) as (proxy, url):
        with scene.connection.transaction():
            scene.connection.execute(SLOW_COMMIT)
        scene.start()
        with psycopg.connect(scene.url) as gate:
            gate.execute("select pg_advisory_xact_lock(1)")
            worker = scene.worker("worker", url=url)
            wait_until(lambda: scene.fetch(AT_THE_GATE), "the commit of the local step")
            proxy.fault = BlackHole(only_answers=True)
        scene.wait_for_line("step_done", "reserve")
        proxy.fault = Reset()
        proxy.fault = Pass()
        scene.wait_until_ended()
        check(scene, undisturbed(KeyedOrder, attempt_of="charge"))
        drain(worker)


SLOW_COMMIT = """
create function wait_at_gate() returns trigger language plpgsql as
$$ begin perform pg_advisory_xact_lock_shared(1); return null; end $$;
create constraint trigger gate after insert on faults_movement deferrable initially deferred
for each row execute function wait_at_gate()
"""
AT_THE_GATE = (
    "select 1 from pg_stat_activity"
    " where datname = current_database() and wait_event = 'advisory' and lower(query) like 'commit%'"
)


@contextmanager
def _proxy(scene: Scene) -> Iterator[tuple[Proxy, str]]:
    """A way to the database on which answers can be lost; and its URL."""
    where = database_from_url(scene.url)
    with Proxy(where["HOST"], int(where["PORT"])) as proxy:
        yield proxy, f"postgresql://{where['USER']}:{where['PASSWORD']}@127.0.0.1:{proxy.port}/{where['NAME']}"


SCENARIOS: list[Callable[[SceneMaker], None]] = [
    sigterm_drains,
    frozen_keyed,
    frozen_asked,
    frozen_then_cancelled,
    killed_and_cancelled,
    frozen_in_refund,
    frozen_in_body,
    refused_pivot_in_doubt,
    postgres_killed_in_external_body,
    postgres_killed_in_local_body,
    postgres_away_longer_than_a_lease,
    connections_cut_while_idle,
    cut_in_record_of_external_step,
    cut_in_record_of_local_step,
    acknowledgement_of_record_lost,
    acknowledgement_of_local_commit_lost,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_outage(scenario: Callable[[SceneMaker], None], outcome: Future[None]) -> None:
    """The saga still ends right; the docstring of each scenario says more."""
    outcome.result()


def play(scenario: Callable[[SceneMaker], None], new_scene: SceneMaker) -> None:
    scenario(new_scene)
