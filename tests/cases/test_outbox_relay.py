"""Relays: many at once, on hosts with wrong clocks, dying between two words, over a database that went back in time."""

from __future__ import annotations

import ast
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import sagas
import sagas_celery
import sagas_outbox
from sagas import Saga, external_step
from sagas.points import Point
from sagas.states import Status
from sagas.testing.processes import ProcessGroup
from sagas_celery.publisher import CeleryPublisher, message
from sagas_django.models import OutboxRow, SagaRow
from tests.cases.conftest import (
    Dead,
    Letter,
    Mailbox,
    deliver,
    dying_at,
    meanwhile,
    memory_broker,
    publish_due,
    received,
    recover,
    relaying,
    sql,
    until_quiet,
    wait_until,
)
from tests.conftest import ROOT
from tests.shop.sagas import Externals, Ordered, Queues, Trip
from tests.shop.world import World, world
from tests.support.stories import Aside, begin, begin_many, differences, expire_leases, outbox, second_connection
from tests.support.workers import one_worker

pytestmark = pytest.mark.usefixtures("shop")


def race(relays: int, count: int, **settings: Any) -> tuple[Counter[int], list[Letter], int]:
    """Let relays publish rows that are all due, from the same instant on, while workers begin what they publish.

    Returns:
        How often each row was published, all messages, and the most rows that were under way at a time.
    """
    box, most = Mailbox(), 0
    published: Counter[int] = Counter()
    letters: list[Letter] = []
    with ExitStack() as stack:
        passes = [stack.enter_context(relaying(box, **settings)).run_once for _ in range(relays)]
        worker = stack.enter_context(one_worker())
        wire = stack.enter_context(closing(worker.store.connect()))

        def all_published() -> bool:
            nonlocal most
            most = max(most, OutboxRow.objects.filter(holder__startswith="relay").count())
            fresh = box.take()
            for letter in fresh:
                worker.begin(wire, letter.rows, published=True)
                published.update(id for id, _ in letter.rows)
            letters.extend(fresh)
            return len(published) == count

        with meanwhile(*passes):
            wait_until(all_published, "all rows")
    published.update(id for letter in box.take() for id, _ in letter.rows)
    return published, letters, most


def test_or01_four_relays_at_the_same_instant(world: World) -> None:
    """Each row is published once, whoever gets it."""
    begin_many(Externals, [str(number) for number in range(240)])
    published, _, _ = race(4, 240)
    assert (len(published), set(published.values())) == (240, {1})


WALL_CLOCK = {"now", "today", "utcnow", "time", "time_ns", "localtime", "gmtime"}


def test_or01_no_clock_of_a_host_decides_anything() -> None:
    """A relay or worker whose clock is ten minutes ahead claims nothing early: the engine asks the database what time
    it is, and measures its own waits with a clock that only counts."""
    found = []
    for package in (sagas, sagas_outbox, sagas_celery):
        for path in Path(str(package.__file__)).parent.rglob("*.py"):
            # who tells people how long ago something was, compares clocks, or lets expire what Celery does by its own
            if "testing" in path.parts or path.name in ("wording.py", "doctor.py", "drop_in.py"):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                if node.func.attr in WALL_CLOCK and ast.unparse(node.func) != "clock.now":  # which tests may move
                    found.append(f"{path}:{node.lineno}")
    assert found == []


def test_or01_a_host_ten_minutes_ahead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due in five minutes stays where it is, and so does what another relay has published."""
    import time

    real = time.time
    monkeypatch.setattr("time.time", lambda: real() + 600)
    begin(Externals, "held")
    begin(Externals, "later")
    sql("update sagas_outbox set due_at = clock_timestamp() + interval '5 minutes' where id = (select max(id) from"
        " sagas_outbox)")  # fmt: skip
    box, other = Mailbox(), Mailbox()
    with relaying(other) as first, relaying(box) as second:
        assert (first.run_once(), second.run_once()) == (1, 0)
    assert sql("select max(due_at) < clock_timestamp() + interval '9 minutes' from sagas_outbox") == [(True,)]


def test_or03_many_rows_due_at_the_same_second(world: World) -> None:
    """As many publishes as rows, in messages of bounded size, and never more under way than the relays may have."""
    count = 400
    begin_many(Externals, [str(number) for number in range(count)])
    sql("update sagas_outbox set due_at = date_trunc('second', clock_timestamp())")
    sql("insert into sagas_pace (name, step, direction, mean) values ('test.externals', 'one', 'do', 0.001)")
    published, letters, most = race(2, count, in_flight=60, message_rows=25)
    assert (len(published), set(published.values())) == (count, {1})
    assert max(len(letter.rows) for letter in letters) <= 25
    assert most <= 2 * 60


VOLATILE = {"id", "root_id", "origin"}  # of headers: Celery's own number for a message, and who sent it


def test_or04_a_message_stored_while_the_broker_was_down(world: World) -> None:
    """There is one way to publish: from the row. What a relay that was restarted after an outage sends is, byte by
    byte, what would have been sent at once."""
    begin(Externals)
    with memory_broker() as (app, queue):
        at_once = CeleryPublisher(app, "default", timeout=5)
        with relaying(at_once) as relay:
            assert relay.run_once() == 1
        first = received(queue)
        sql("update sagas_outbox set holder = null, publishes = 0, due_at = clock_timestamp()")  # as it was

        def down(letter: Letter) -> None:
            raise ConnectionRefusedError

        with relaying(Mailbox(refuses=down)) as relay:
            assert relay.run_once() == 0
        sql("update sagas_outbox set due_at = clock_timestamp()")
        afresh = CeleryPublisher(app, "default", timeout=5)
        with relaying(afresh) as relay:
            assert relay.run_once() == 1
        second = received(queue)
        at_once.reset()
        afresh.reset()
    assert first.body == second.body
    assert {k: v for k, v in first.headers.items() if k not in VOLATILE} == {
        k: v for k, v in second.headers.items() if k not in VOLATILE
    }
    same = ("delivery_mode", "priority", "delivery_info", "body_encoding")
    assert [first.properties[name] for name in same] == [second.properties[name] for name in same]
    assert first.payload[1] == message("default", [(outbox(Externals.get(key="a"))[0].id, 0)])


class Last(Saga[Ordered], name="cases.last", version=1):
    """One step, during which the test does something else."""

    @external_step(compensate=None)
    def work(self) -> str:
        return str(world.act("work", self))


def test_or05_a_row_that_comes_while_others_are_cleared_away(world: World) -> None:
    """While a step runs and is recorded, and its row removed with the end of the saga, another row of the same saga
    commits: whoever removes, removes what it names. The late row is published, and applied."""
    saga = begin(Last)
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        [letter] = publish_due(relay, mailbox)
        world.plan("work", lambda run: Aside(lambda: Last.cancel(key="a", reason="late")).join())
        assert deliver(letter) == 1
        assert Last.get(key="a").status == Status.COMPLETED
        [late] = outbox(saga)
        assert late.kind == "cancel" and (late.id, late.token) not in letter.rows
        [again] = publish_due(relay, mailbox)
        assert again.rows == ((late.id, late.token),)
        assert deliver(again) == 1
    assert (outbox(saga), differences()) == ([], [])


@pytest.mark.parametrize(("point", "sent"), [(Point.AFTER_CLAIM, 0), (Point.AFTER_PUBLISH, 1)], ids=["claimed", "sent"])
def test_or06_a_relay_dies_between_claim_and_send_and_after(world: World, point: Point, sent: int) -> None:
    """Claimed and not sent: sent by another one after the publish window. Sent: perhaps sent again, in the very same
    words, and begun once. There is nothing to mark or archive after sending."""
    begin(Trip)
    box, again = Mailbox(), Mailbox()
    with relaying(box) as relay, dying_at(point) as death, pytest.raises(Dead):
        relay.run_once()
    assert death.hit and len(box.letters) == sent
    with relaying(again) as relay:
        assert relay.run_once() == 0  # not before the window ends
        expire_leases()
        [second] = publish_due(relay, again)
    assert all(first == second for first in box.letters)
    assert sum(deliver(letter) for letter in [*box.letters, second]) == 1
    recover()
    assert (Trip.get(key="a").status, world.count()) == (Status.COMPLETED, {"book": 1, "charge": 1, "confirm": 1})


STARTER = """
import os, sys
import django
django.setup()
from django.db import transaction
from tests.shop.sagas import Ordered, Trip
with transaction.atomic():
    transaction.on_commit(lambda: os._exit(9))
    Trip.start(Ordered(), key="a")
"""


def test_or08_the_caller_dies_in_the_first_commit_hook(world: World, shop: str, process_group: ProcessGroup) -> None:
    """No hook of ours ran, so nobody was told; the saga is in the commit and runs. A hook is a hint to look sooner."""
    env = {"DATABASE_URL": shop, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    caller = process_group.python("-c", STARTER, name="caller", env=env, cwd=ROOT)
    assert caller.wait(20) == 9, caller.output()
    mailbox = Mailbox()
    with relaying(mailbox) as relay:
        until_quiet(relay, mailbox)
    assert Trip.get(key="a").status == Status.COMPLETED


def test_or08_hooks_of_a_caller_come_after_the_fact(world: World) -> None:
    """Whoever is told that the transaction is committed finds the saga, and its row."""
    from django.db import transaction

    seen = []
    with transaction.atomic():
        transaction.on_commit(lambda: Aside(lambda: seen.append(len(outbox(Trip.get(key="a"))))).join())
        Trip.start(Ordered(), key="a")
    assert seen == [1]


def test_or09_a_saga_under_another_alias(world: World, other_database: str) -> None:
    """Its rows are claimed, named in messages and moved on where they are: one publish in three passes, and the default
    database knows nothing of it."""
    begin(Queues, using=other_database)
    mailbox = Mailbox()
    with relaying(mailbox, other_database) as relay, relaying(Mailbox()) as default:
        assert [relay.run_once() for _ in range(3)] == [1, 0, 0]
        assert [default.run_once() for _ in range(3)] == [0, 0, 0]
        [letter] = mailbox.take()
        assert letter.queue == "left" and message(other_database, letter.rows)["store"] == other_database
        assert deliver(letter, using=other_database) == 1
        wait_until(relay.run_once, "the row in a queue that was not there before")
        assert [relay.run_once() for _ in range(3)] == [0, 0, 0]
        [letter] = mailbox.take()
        assert letter.queue == "right"
        assert deliver(letter, using=other_database) == 1
    assert Queues.get(key="a", using=other_database).status == Status.COMPLETED
    assert (SagaRow.objects.count(), OutboxRow.objects.using(other_database).count()) == (0, 0)


TABLES = ("sagas_saga", "sagas_log", "sagas_outbox", "sagas_dedupe")


def test_or10_the_database_goes_back_in_time(world: World) -> None:
    """After a restore the broker still has messages of the lost future, and the bank what was paid in it. No relay
    holds a position outside the tables: what is due is published. What runs again does so under the same keys; messages
    about rows that never were, or are not that far yet, begin nothing."""
    mailbox = Mailbox()
    begin_many(Trip, [str(number) for number in range(6)])
    with relaying(mailbox) as relay, second_connection() as copy:
        deliver(*publish_due(relay, mailbox))  # the first step of each
        for table in TABLES:
            copy.execute(f"create temporary table kept_{table} as table {table}")
        begin_many(Trip, [f"lost-{number}" for number in range(4)])
        future = until_quiet(relay, mailbox)
        assert SagaRow.objects.filter(status="completed").count() == 10
        copy.execute("set sagas.pruning = 'on'")
        with copy.transaction():
            for table in TABLES:
                copy.execute(f"delete from {table}; insert into {table} select * from kept_{table}")
        assert sum(deliver(letter) for letter in future) == 0
        until_quiet(relay, mailbox)
        assert sum(deliver(letter) for letter in future) == 0
    recover()
    assert set(SagaRow.objects.values_list("key", "status")) == {(str(number), "completed") for number in range(6)}
    assert len({call.key for call in world.of("charge")}) == 10
    assert differences() == []
