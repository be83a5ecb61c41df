"""Incidents of old and new code side by side: work that nobody knew was thrown away."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sagas import Refused, Saga, external_step, step
from sagas.registry import registry
from sagas.states import Status
from sagas_celery.checks import TASK
from sagas_celery.tasks import run as task
from sagas_django.models import LogEntry
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Room
from tests.shop.sagas import After, Before, Externals, Grown1, Grown2, Ordered, Trip
from tests.shop.world import World, world
from tests.support.stories import NO_WAIT, begin, bring_forward, drain, log_of, outbox, second_connection
from tests.support.workers import one_worker, run_together

pytestmark = pytest.mark.usefixtures("shop")


def only(patch: pytest.MonkeyPatch, *, without: type[Saga[Any]], instead: type[Saga[Any]] | None = None) -> None:
    """Let this process know all sagas but one, or another class in its place."""
    known = {place: each for place, each in registry._sagas.items() if each not in (without, instead)}
    if instead is not None:
        known[without.saga_name, without.saga_version] = instead
    patch.setattr(registry, "_sagas", known)


def test_vr01_an_old_worker_throws_nothing_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One task serves all sagas, so no worker can fail to know its name. A worker that does not know a version hands
    the rows back with one word in its log, and whoever knows it runs all of them."""
    assert (task.name, TASK) == ("sagas.run", "sagas.run")
    keys = [str(number) for number in range(20)]
    for key in keys:
        begin(Grown2, key, After(1))
    begin(Grown1, "old", Before(1))
    store = DjangoStore("default")
    connection = store.connect()
    published = claims.claim(
        connection, [Room("default", 100)], holder="relay:test", window=60, begun=False, now=None
    )  # fmt: skip
    assert len(published) == 21
    with monkeypatch.context() as old, one_worker(goes_on=True) as worker, caplog.at_level(logging.WARNING):
        only(old, without=Grown2)
        half = [(row.id, row.token) for row in published[::2]]
        begun = worker.begin(connection, half, published=True)
        assert all(delivery.version == 1 for delivery in begun)
        worker.run(worker.take_up(begun))
    [told] = [each for each in caplog.records if "not registered in this process, only version 1" in each.getMessage()]
    assert told.levelname == "WARNING" and f"{len(half) - len(begun)} sagas of " in told.getMessage()
    connection.execute("update sagas_outbox set holder = null, due_at = now()")  # the sweep: claims and delays end
    connection.close()
    drain()
    assert {Grown2.get(key=key).status for key in keys} == {Status.COMPLETED}
    assert Grown2.get(key="old").status == Status.COMPLETED
    assert not LogEntry.objects.filter(kind__in=("step_failed", "parked")).exists()


class Moved(Saga[Ordered], name="case.moved_here", version=1):
    """`Trip` as it might stand in another module after a tidying up; it is found by its declared name."""

    @step
    def book(self) -> int:
        return 0

    @book.compensate
    def unbook(self, booking: int) -> None:
        world.act("unbook-moved", self, booking)

    @external_step
    def charge(self) -> str:
        return world.act("charge-moved", self)  # type: ignore[no-any-return]

    @charge.compensate
    def refund(self, charge: str) -> None:
        world.act("refund-moved", self, charge)

    @step
    def confirm(self) -> str:
        return world.act("confirm-moved", self)  # type: ignore[no-any-return]

    @confirm.compensate
    def withdraw(self, confirmed: str) -> None: ...


@pytest.mark.parametrize("after", ["moved", "restored"])
def test_vr03_code_that_moved_or_is_gone(
    after: str, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A row names a saga by its declared name, never by a path. Gone: it waits, burns no attempt, says so, and holds
    up nobody; back, or back under another path: it goes on where it was."""
    run = begin(Trip)
    run_together()
    begin(Externals, "other")
    with monkeypatch.context() as gone, caplog.at_level(logging.WARNING, "sagas.worker"):
        only(gone, without=Trip)
        drain(skip=NO_WAIT, check=False)
    assert Externals.get(key="other").status == Status.COMPLETED
    assert "import the module that defines it" in caplog.text
    [row] = outbox(run)
    assert (row.step, row.deliveries, row.failures, row.holder) == ("charge", 0, 0, None)
    bring_forward()
    with monkeypatch.context() as patch:
        if after == "moved":
            only(patch, without=Trip, instead=Moved)
            world.plan("confirm-moved", Refused("no"))
        drain(check=after != "moved")
        assert Trip.get(key="a").status == (Status.COMPENSATED if after == "moved" else Status.COMPLETED)
    if after == "moved":
        assert world.names[1:] == ["charge-moved", "confirm-moved", "refund-moved", "unbook-moved"]
    assert "parked" not in " ".join(log_of(run))


def test_vr01_a_request_of_a_newer_release_waits_for_it(
    other_database: str, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """An old worker meets a kind of request that only newer code knows: it gives that row back, with a word in its
    log, and what it ran beside it is recorded."""
    run = begin(Externals, "asked", using="other")
    begin(Externals, "neighbour", using="other")
    with second_connection("other") as other:
        other.execute("alter table sagas_outbox drop constraint sagas_outbox_kind")
        other.execute(
            "update sagas_outbox set kind = 'newer', step = null, direction = null where saga_id = %s", [run.id]
        )
        with caplog.at_level(logging.ERROR, "sagas.worker"):
            run_together("other", goes_on=True)
        found = other.execute(
            "select kind, deliveries, holder from sagas_outbox where saga_id = %s", [run.id]
        ).fetchall()
    assert found == [("newer", 0, None)]
    assert "newer" in caplog.text
    assert Externals.get(key="neighbour", using="other").status == Status.COMPLETED
