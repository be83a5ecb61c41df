"""One bad row delays only itself, and no body begins without a lease that holds."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest
from django.db import connection

from sagas.events import Failed
from sagas.states import Status
from sagas_django.models import OutboxRow, SagaRow
from tests.shop.sagas import Asked, Externals, Local
from tests.shop.world import World
from tests.support.stories import Aside, begin, begin_many, drain, log_of, outbox, second_connection
from tests.support.workers import begin_due, living_worker, one_worker, run_batch, run_together

pytestmark = pytest.mark.usefixtures("shop")

BOUND = 20.0  # seconds


def test_a_locked_saga_holds_up_nobody_else(world: World) -> None:
    """Results of one batch are recorded although one saga is locked by another session; that one follows later."""
    begin_many(Asked, [str(number) for number in range(30)])
    locked = SagaRow.objects.get(key="7").id
    with second_connection() as other, one_worker() as worker:
        other.autocommit = False
        other.execute("select from sagas_saga where id = %s for update", [locked])
        batch = begin_due(worker)
        first, rest = (
            [each for each in batch if each.saga_id == locked],
            [each for each in batch if each.saga_id != locked],
        )
        waiting = threading.Thread(target=run_batch, args=(worker, first))
        waiting.start()
        done = threading.Thread(target=run_batch, args=(worker, rest))
        done.start()
        done.join(BOUND)
        assert not done.is_alive(), "it waits for somebody else's lock"
        assert waiting.is_alive()
        assert SagaRow.objects.filter(finished_at__isnull=False).count() == 29
        other.rollback()
        waiting.join(BOUND)
        assert not waiting.is_alive()
    assert SagaRow.objects.filter(finished_at__isnull=False).count() == 30
    assert set(world.count().values()) == {30}, "no body ran twice"


def test_a_decision_that_cannot_be_made_costs_its_neighbours_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of the machine about one saga is logged with its name; the results beside it are recorded."""
    from sagas import machine

    begin_many(Asked, ["good", "odd", "fine"])
    odd, decide = SagaRow.objects.get(key="odd"), machine.decide
    world.plan("charge", ConnectionError("no reply"), saga="odd")

    def faulty(plan: Any, state: Any, event: Any) -> Any:
        if isinstance(event, Failed):
            raise KeyError("a fault of ours")
        return decide(plan, state, event)

    monkeypatch.setattr(machine, "decide", faulty)
    with one_worker() as worker, caplog.at_level(logging.ERROR, "sagas"):
        run_batch(worker, begin_due(worker))
    assert SagaRow.objects.filter(finished_at__isnull=False).count() == 2
    assert str(odd.id) in caplog.text
    monkeypatch.undo()
    assert OutboxRow.objects.get(saga_id=odd.id).holder, "its lease runs out, and another worker takes over"


def test_no_body_begins_after_its_lease(world: World, settings: Any) -> None:
    """A process that was frozen between begin and body leaves the body to whoever took over."""
    settings.SAGAS = {"WAKE": False, "LEASE": 0.3, "HEARTBEAT": 0.1}
    run = begin(Asked)
    with one_worker() as worker:
        begun = begin_due(worker)
        with connection.cursor() as cursor:
            cursor.execute(
                "select pg_sleep(greatest(0, extract(epoch from max(due_at) - clock_timestamp()))) from sagas_outbox"
            )
        run_batch(worker, begun)
    assert (world.names, log_of(run)) == ([], ["started"])
    world.plan("find", "charge-7")
    drain()
    assert (Asked.get(key="a").status, world.names) == (Status.COMPLETED, ["find"])


def test_what_came_of_an_external_step_is_recorded_before_a_group_of_local_ones(world: World, settings: Any) -> None:
    """Local steps may take long, and a kill meanwhile would leave it unknown."""
    settings.SAGAS = {"WAKE": False, "LOCAL_GROUP": 1}
    begin(Externals, "outside")
    begin(Local, "inside")
    seen: list[str] = []
    world.plan("body", lambda run: seen.extend(log_of(Externals.get(key="outside"))), saga="inside")
    assert run_together() == 2
    assert seen == ["started", "step_done one"]


@pytest.mark.parametrize("first", ["inside", "outside"])
def test_a_local_step_beside_an_external_one_that_hangs_is_given_back(first: str, world: World, settings: Any) -> None:
    """Whichever of the two came first: what has not begun does not wait for another system."""
    reached, opened = threading.Event(), threading.Event()

    def hang(run: Any) -> None:
        reached.set()
        assert opened.wait(BOUND)

    world.plan("charge", hang)
    begin_these = {"inside": lambda: begin(Local, "inside"), "outside": lambda: begin(Asked, "outside")}
    runs = {name: begin_these[name]() for name in sorted(begin_these, key=lambda name: name != first)}
    with living_worker(settings, hand_back_after=0.1, heartbeat=0.1) as worker:
        working = Aside(lambda: run_batch(worker, begin_due(worker)))
        try:
            assert reached.wait(BOUND)
            until = time.monotonic() + BOUND
            while not (given_back := [row for row in outbox(runs["inside"]) if row.holder is None]):
                assert time.monotonic() < until
            assert given_back[0].deliveries == 0
        finally:
            opened.set()
            working.join()


def test_local_steps_share_a_transaction_whoever_is_between_them(world: World) -> None:
    """A batch in which external steps lie between local ones."""
    ids: list[int] = []

    def look(run: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("select txid_current()")
            ids.append(cursor.fetchone()[0])

    world.always("body", look)
    for number in range(3):
        begin(Local, f"inside-{number}")
        begin(Externals, f"outside-{number}")
    assert run_together() == 6
    assert (len(ids), len(set(ids))) == (3, 1)
