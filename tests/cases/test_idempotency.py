"""Incidents of effects that happened twice, because two requests did not look alike or the memory was gone."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from sagas import NOT_DONE, Refused, Retry, Saga, external_step
from sagas.states import Status
from sagas.testing.processes import ProcessGroup
from sagas_django.models import LogEntry, SagaRow
from tests.shop.models import Booking
from tests.shop.sagas import Charge, Effects, Ordered, Trip
from tests.shop.world import World, world
from tests.support.stories import (
    NO_WAIT,
    Aside,
    begin,
    dedupe,
    drain,
    expire_leases,
    outbox,
    second_connection,
)
from tests.support.workers import begin_due, one_worker, run_batch, run_together

pytestmark = pytest.mark.usefixtures("shop")
ROOT = Path(__file__).parents[2]
LOST = ConnectionError("no reply")
DAY = 24 * 3600


class Remembers(Saga[Ordered], name="case.remembers", version=1):
    """Its bank forgets keys after an hour; `find` can look for the charge."""

    @external_step(retry=Retry(max_attempts=5, first=10), key_ttl=3600, compensate=None)
    def charge(self) -> str:
        return world.act("charge", self)  # type: ignore[no-any-return]

    @charge.resolve
    def find(self) -> Any:
        return world.act("find", self)


class Mute(Saga[Ordered], name="case.mute", version=1):
    """The same without anybody to ask."""

    @external_step(retry=Retry(max_attempts=5, first=10), key_ttl=3600, compensate=None)
    def charge(self) -> str:
        return world.act("charge", self)  # type: ignore[no-any-return]


class Swapped(Saga[Ordered], name="case.swapped", version=1):
    """Two guarded effects, in an order that a deployment between two attempts changes."""

    @external_step(retry=Retry(max_attempts=3, first=10), compensate=None)
    def pay(self) -> None:
        for name in ("debit", "credit") if self.attempt == 1 else ("credit", "debit"):
            self.effect(name, lambda key, name=name: world.ask(name, self, key), returns=str)  # type: ignore[misc]
        world.act("after", self)


SHOW_KEYS = """
import django, json; django.setup()
from sagas.embedded import Embedded
from sagas_django.store import DjangoStore
from tests.shop.world import world
Embedded(DjangoStore("default"), concurrency=1).run(until_idle=True)
print(json.dumps([[call.name, call.key] for call in world.calls]))
"""


def test_id01_a_key_has_nothing_volatile_in_it(
    other_database: str, fresh_database: str, process_group: ProcessGroup, world: World
) -> None:
    """Another attempt, process, day, hash seed and order of JSON keys: the same key. Each step, direction and saga has
    its own."""
    world.always("charge", LOST, saga="a")
    for key in ("a", "b"):
        begin(Trip, key, using="other")
    drain("other", skip=NO_WAIT)  # the saga "a" has been charged for, perhaps
    with second_connection("other") as other:
        other.execute("update sagas_outbox set due_at = now(), first_begun_at = first_begun_at - interval '1 day'")
    process = process_group.python(
        "-c", SHOW_KEYS,
        name="worker", cwd=ROOT,
        env={"DATABASE_URL": fresh_database, "DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONHASHSEED": "7"},
    )  # fmt: skip
    assert process.wait(60) == 0, process.output()
    there = dict(json.loads(process.output().strip().splitlines()[-1]))
    [charged] = {call.key for call in world.of("charge") if call.saga == "a"}
    assert there["charge"] == charged
    keys = {(call.saga, call.name): call.key for call in world.calls}
    assert len(set(keys.values())) == len(keys)
    world.plan("withdraw", None)
    undone = begin(Trip, "c")
    world.plan("confirm", Refused("no"))
    drain()
    assert world.of("refund")[0].key == f"{undone.id}:charge:undo:0" != world.of("charge")[-1].key


@pytest.mark.parametrize("saga", ["open", "finished", "gone"])
def test_id04_memory_of_an_effect_outlives_its_messages(saga: str, world: World) -> None:
    """An open saga keeps its records. A message that comes after the end, or for a saga that is gone, runs nothing.

    Nothing purges yet; what it must keep is shown by the open saga, see README.md.
    """
    world.plan("credit", LOST)
    run = begin(Effects)
    drain(skip=NO_WAIT)
    [row] = outbox(run)
    assert dedupe(run)["pay/debit:do:0"] == "done"
    if saga == "open":
        drain()
        assert world.count()["debit"] == 1
        return
    drain()
    before = list(world.names)
    with second_connection() as other, one_worker() as worker:
        if saga == "gone":
            other.execute("set sagas.pruning = 'on'")
            other.execute("delete from sagas_saga; delete from sagas_log; delete from sagas_dedupe")
        assert worker.begin(other, [(row.id, token) for token in range(row.token + 3)], published=True) == []
        other.execute(  # by a sweeper that knows no better
            "insert into sagas_outbox (saga_id, kind, step, direction, queue)"
            " values (%s, 'step', 'pay', 'do', 'default')",
            [run.id],
        )
    run_together()
    assert world.names == before
    assert not LogEntry.objects.filter(saga_id=run.id, kind="step_failed", seq__gt=2).exists()


@pytest.mark.parametrize(("saga", "found"), [(Mute, None), (Remembers, "charge-7"), (Remembers, NOT_DONE)])
def test_id05_no_attempt_after_the_provider_forgot_the_key(saga: type[Saga[Any]], found: Any, world: World) -> None:
    """The reply was lost and the workers were down for longer than the key lives: `resolve` is asked, or a person.

    After NOT_DONE at that time nothing was done and nothing may begin: the saga turns back."""
    world.plan("charge", LOST)
    world.plan("find", found)
    begin(saga)
    drain(skip=NO_WAIT)
    with second_connection() as other:
        other.execute(
            "update sagas_outbox set due_at = now() - interval '2 h', first_begun_at = first_begun_at - interval '2 h'"
        )
        other.execute("update sagas_saga set created_at = created_at - interval '2 hours'")
    drain()
    assert len(world.of("charge")) == 1
    ends = {None: Status.PARKED, "charge-7": Status.COMPLETED, NOT_DONE: Status.COMPENSATED}
    assert saga.get(key="a").status == ends[found]


@pytest.mark.parametrize("level", ["read committed", "serializable"])
@pytest.mark.parametrize("holder_commits", [True, False])
def test_id07_the_same_key_at_the_same_moment(holder_commits: bool, level: str) -> None:
    """Uniqueness holds from the first moment, not from the end: others wait for whoever was first, and one of them is
    next if that one rolls back. In SERIALIZABLE the usual retryable error reaches the caller."""
    results: list[Any] = []
    held, go_on = threading.Event(), threading.Event()

    def place(hold: bool, commits: bool) -> None:
        try:
            with transaction.atomic():
                with connection.cursor() as cursor:
                    cursor.execute(f"set transaction isolation level {level}")
                run = Trip.start(Ordered(7), key="one")
                if hold:
                    held.set()
                    assert go_on.wait(20)
                transaction.set_rollback(not commits)
            results.append((run.id, run.created, commits))
        except OperationalError as problem:
            results.append(getattr(problem.__cause__, "sqlstate", None))

    holder = Aside(lambda: place(True, holder_commits))
    assert held.wait(20)
    others = [Aside(lambda commits=commits: place(False, commits)) for commits in (True, False) * 4]  # type: ignore[misc]
    try:
        wait_until_blocked(len(others))
    finally:
        go_on.set()
        for each in (holder, *others):
            each.join()
    assert SagaRow.objects.filter(key="one").count() == 1
    [only] = SagaRow.objects.all()
    errors = {each for each in results if not isinstance(each, tuple)}
    assert errors <= ({"40001"} if level == "serializable" else set())
    created = {
        id for id, is_new, commits in (each for each in results if isinstance(each, tuple)) if is_new and commits
    }
    assert created == {only.id}
    assert Trip.get(key="one").id == only.id


def wait_until_blocked(many: int) -> None:
    """Wait until so many backends wait for the transaction of another one."""
    deadline = time.monotonic() + 20
    with second_connection() as other:
        while True:
            row = other.execute(
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            ).fetchone()
            assert row is not None
            if row[0] >= many:
                return
            assert time.monotonic() < deadline, f"{row[0]} of {many} wait"
            time.sleep(0.01)


def test_id09_what_a_retried_step_does_through_us_happens_once(world: World) -> None:
    """Guarded effects are had once each, under keys of their own: made of their names, so that another order in the
    code of the next attempt changes nothing. What a local step starts is rolled back with it."""
    world.plan("after", LOST)
    begin(Swapped)
    drain()
    assert Swapped.get(key="a").status == Status.COMPLETED
    assert world.count() == {"debit": 1, "credit": 1, "after": 2}
    assert len({call.key for call in world.calls}) == 3
    created: list[bool] = []

    def start_child(run: Any) -> None:
        created.append(Mute.start(Ordered(), key="child").created)
        if len(created) == 1:
            raise ValueError("after the child was started")

    world.plan("confirm", start_child, start_child)
    begin(Trip)
    drain()
    assert Trip.get(key="a").status == Status.COMPLETED
    assert created == [True, True]  # the first was rolled back
    assert SagaRow.objects.filter(key="child").count() == 1
    assert Booking.objects.filter(step="confirm").count() == 1


@pytest.mark.parametrize("guarded", [False, True])
def test_id10_without_the_guard_an_overlap_asks_twice(guarded: bool, world: World) -> None:
    """The weaker promise, as documented: the body of a worker that was taken for dead and one that took over may both
    ask; they use one key. A guarded effect that has its answer is not asked for again.

    Two that are under way at once both ask also with the guard, since nobody may wait for a dead worker: that is what
    the key is for.
    """
    saga, name = (Effects, "debit") if guarded else (Charge, "charge")

    def overlap(run: Any) -> str:
        expire_leases()
        with one_worker() as other:
            run_batch(other, begin_due(other))
        return "first"

    world.plan("credit" if guarded else "charge", overlap)
    begin(saga)
    drain(check=False)
    expire_leases()
    drain()
    assert saga.get(key="a").status == Status.COMPLETED
    assert len(world.of(name)) == (1 if guarded else 2)
    assert len({call.key for call in world.of(name)}) == 1
