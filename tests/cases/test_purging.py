"""Incidents of what is removed: too early, never, or at the price of everybody else."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.db import connection, transaction
from django.test import Client

from sagas import SagaNotFound, engine
from sagas.retention import Batches, Old, prune, prune_batch
from sagas.states import Status
from sagas_django.models import SagaRow
from sagas_django.store import DjangoStore
from tests.cases.conftest import Mailbox, deliver, publish_due, recover, relaying
from tests.integration.test_admin_actions import LIST, root
from tests.shop.sagas import Charge, Externals
from tests.shop.world import World
from tests.support.stories import begin, begin_many, drain

__all__ = ["root"]

pytestmark = pytest.mark.usefixtures("shop")
YEAR = 365 * 24 * 3600.0  # seconds


def age() -> None:
    """Whatever has ended did so a year ago."""
    with connection.cursor() as cursor:
        cursor.execute("update sagas_saga set finished_at = finished_at - interval '1 year'")


def purged(limit: int = 200) -> int:
    """Remove what ended half a year ago; how many sagas."""
    with DjangoStore("default").connect() as raw:
        return sum(prune(raw, Old(age=YEAR / 2, archive=True), Batches(limit)))


def counted(query: str) -> int:
    """What a query counts."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("gone", [False, True])
def test_id04_an_old_message_after_a_purge_runs_nothing(world: World, gone: bool) -> None:
    """A message of a finished saga is delivered again, its row is made due again, somebody asks for a retry: before the
    purge and after it, nothing is executed, and the key is still known."""
    saga = begin(Externals)
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        letters = publish_due(relay, mailbox)
        deliver(*letters, goes_on=True)
        assert Externals.get(key="a").status == Status.COMPLETED
        calls = world.count()
        if gone:
            age()
            assert purged() == 1
        assert deliver(*letters) == 0
        try:
            with transaction.atomic():
                engine.request(None, "retry", id=saga.id, reason="by hand")
        except SagaNotFound:
            assert gone
    recover()
    assert world.count() == calls
    again = begin(Externals)
    assert (again.id, again.created) == (saga.id, False)
    recover()
    assert world.count() == calls


def test_id04_an_open_saga_keeps_its_keys(world: World) -> None:
    """However old it is: what remembers its effects goes only with it."""
    world.plan("charge", ConnectionError("no reply"), ConnectionError("no reply"))
    begin(Charge)
    with relaying(Mailbox()) as relay:
        relay.run_once()
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into sagas_dedupe (key, saga_id, state, token)"
            " select id || ':charge:do:0', id, 'started', 1 from sagas_saga"
        )
        cursor.execute("update sagas_saga set created_at = created_at - interval '9 years',"
                       " updated_at = updated_at - interval '9 years'")  # fmt: skip
    assert purged() == 0
    assert counted("select count(*) from sagas_dedupe") == 1


@pytest.mark.parametrize("many", [600, pytest.param(100_000, marks=pytest.mark.full)])
def test_sc03_many_finished_sagas_are_removed_beside_live_traffic(world: World, root: Client, many: int) -> None:
    """In small transactions that take what nobody holds: two at once, and one that is killed half-way, lose nothing and
    hold nobody up; keys stay known, and the list of what is left needs no count of all."""
    begin_many(Externals, [f"old {number}" for number in range(600)])
    drain()
    if many > 600:
        with connection.cursor() as cursor:
            cursor.execute(
                "insert into sagas_saga (id, name, version, key, status, seq, input_hash, definition, finished_at)"
                " select gen_random_uuid(), name, version, key || '-' || n, status, seq, input_hash, definition,"
                " finished_at"
                " from sagas_saga, generate_series(1, %s / 600) n", [many],
            )  # fmt: skip
    age()
    young = begin(Externals, "young")
    before = counted("select count(*) from sagas_saga")
    with DjangoStore("default").connect() as half, half.transaction():
        half.execute("select from sagas_saga where id = %s for update", [young.id])  # a worker at work
        dying = DjangoStore("default").connect()
        dying.execute("begin")
        assert prune_batch(dying, Old(age=YEAR / 2, archive=True))
        dying.close()  # killed before its commit
        assert counted("select count(*) from sagas_saga") == before
        both = [purger(many // 12), purger(many // 12)]
        for wait in both:
            wait()
    assert [row.key for row in SagaRow.objects.all()] == ["young"]
    assert counted("select count(*) from sagas_archive") == before - 1
    drain()
    assert Externals.get(key="young").status == Status.COMPLETED
    assert not begin(Externals, "old 7").created
    assert root.get(LIST).status_code == 200


def purger(limit: int) -> Callable[[], None]:
    """Somebody who purges, in a thread; returns how to wait for the end."""
    thread = threading.Thread(target=purged, kwargs={"limit": limit})
    thread.start()

    def wait() -> None:
        thread.join(120)
        assert not thread.is_alive()

    return wait
