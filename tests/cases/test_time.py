"""Incidents of clocks that jump, and of periodic work done twice."""

from __future__ import annotations

import ast
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from sagas import Refused
from sagas.embedded import Embedded
from sagas.states import Status
from sagas.store import rows
from sagas_django.models import SagaRow
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Held, Room
from sagas_outbox.relay import Relay
from tests.shop.models import Booking
from tests.shop.sagas import Externals, Trip
from tests.shop.world import World
from tests.support.attentive import attentive
from tests.support.stories import NO_WAIT, Aside, begin_many, differences, drain, second_connection

pytestmark = pytest.mark.usefixtures("shop")
ROOT = Path(__file__).parents[2]
LOST = ConnectionError("no reply")
CHANGES = [  # a repeated hour, a skipped hour, a leap day
    datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
    datetime(2027, 3, 14, 6, 30, tzinfo=UTC),
    datetime(2028, 2, 28, 23, 30, tzinfo=UTC),
]


class Broker:
    """Takes whatever it is given; safe to use from several threads."""

    def __init__(self) -> None:
        self.sent: list[Held] = []

    def publish(self, queue: str, rows: Any) -> None:
        """Take a message."""
        self.sent += rows

    def reset(self) -> None:
        """Nothing to drop."""


def test_tm02_the_hosts_clock_decides_nothing(world: World, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's clock is a day ahead, then an hour back, in a zone with a repeated hour: every step is begun when it
    is due in Postgres, and as often as without."""
    settings.TIME_ZONE = "America/New_York"
    offset, real = 86400.0, time.time
    monkeypatch.setattr(time, "time", lambda: real() + offset)
    keys = [str(number) for number in range(20)]
    begin_many(Trip, keys)
    for key in keys[:5]:
        world.plan("charge", LOST, saga=key)
    for key in keys[5:8]:
        world.plan("confirm", Refused("no"), saga=key)
    drain(skip=NO_WAIT, concurrency=2)
    assert len(world.of("charge")) == 20  # a retry that is not due yet is not due a day ahead either
    offset = -3600.0
    drain(concurrency=2)
    assert (len(world.of("book")), len(world.of("charge")), len(world.of("confirm"))) == (20, 25, 20)
    assert len(world.of("refund")) == 3
    assert SagaRow.objects.filter(status=Status.COMPLETED).count() == 17


@pytest.mark.parametrize("change", CHANGES, ids=["repeated hour", "skipped hour", "leap day"])
def test_tm02_a_clock_that_steps_back_publishes_nothing_again(change: datetime) -> None:
    """Around a change of the clocks, seen by two relays five minutes apart, then an hour back, then a day ahead: at
    each moment only what is due is published, and what was published is not due."""
    begin_many(Externals, ["a", "b", "c"])
    with second_connection() as one, second_connection() as other:
        one.execute("set timezone = 'America/New_York'")
        one.execute("update sagas_outbox set due_at = %s", [change])

        def publish(relay: Any, now: datetime) -> int:
            return len(
                claims.claim(relay, [Room("default", 100)], holder="relay:x", window=600, begun=True, now=now)
            )  # fmt: skip

        assert publish(one, change - timedelta(minutes=1)) == 0
        assert publish(one, change) == 3
        assert publish(other, change + timedelta(minutes=5)) == 0
        assert publish(other, change - timedelta(hours=1)) == 0
        assert publish(one, change + timedelta(seconds=599)) == 0
        assert publish(one, change + timedelta(days=1)) == 3
        assert publish(other, change + timedelta(days=1)) == 0


CLOCKS = {("time", "time"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("timezone", "now")}
# ages shown to people; how far the clocks are apart; what Celery lets expire by the clock of who calls
LOOKING_ONLY = {"wording.py", "admin_lanes.py", "admin_schedules.py", "doctor.py", "drop_in.py"}


def test_tm02_no_module_asks_the_host_what_time_it_is() -> None:
    """Due times and leases come from the database; durations inside a process from its monotonic clock."""
    found = []
    for folder in ("sagas", "outbox", "integrations"):
        for file in (ROOT / folder).rglob("*.py"):
            if file.name in LOOKING_ONLY or "testing" in file.parts:
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
                    continue
                if (node.value.id, node.attr) in CLOCKS:
                    found.append(f"{file}:{node.lineno}")
    assert found == []


def deadlocks() -> int:
    """How many deadlocks Postgres has broken in this database."""
    with connection.cursor() as cursor:
        cursor.execute("select deadlocks from pg_stat_database where datname = current_database()")
        return int(cursor.fetchone()[0])


def mixed_states(world: World) -> None:
    """Two hundred sagas: finished, parked, waiting for a retry, waiting for a request, and fresh."""
    kinds = {"finished": 40, "parked": 40, "retrying": 40}
    for kind, many in kinds.items():
        begin_many(Trip, [f"{kind}-{number}" for number in range(many)])
    for number in range(40):
        world.plan("confirm", Refused("no"), saga=f"parked-{number}")
        world.plan("refund", Refused("no"), saga=f"parked-{number}")
        world.plan("book", ValueError("later"), saga=f"retrying-{number}")
    drain(skip=NO_WAIT, concurrency=2)
    begin_many(Trip, [f"fresh-{number}" for number in range(80)])
    for number in range(20):
        Trip.cancel(key=f"fresh-{number}", reason="enough")


def test_tm03_relays_side_by_side_publish_what_one_would(world: World) -> None:
    """Five passes at once over sagas in all states: every due row once, nothing else, no deadlock."""
    mixed_states(world)
    before, start, brokers = deadlocks(), threading.Barrier(5), [Broker() for _ in range(5)]
    store = DjangoStore("default")

    def one_pass(broker: Broker) -> None:
        relay = attentive(Relay(store.connect, broker, store.settings, paces=rows.paces))
        start.wait(20)
        while relay.run_once():
            pass
        relay._link.close()

    passes = [Aside(lambda broker=broker: one_pass(broker)) for broker in brokers]  # type: ignore[misc]
    for each in passes:
        each.join()
    published = [held for broker in brokers for held in broker.sent]
    assert len(published) == len(set(published)) == 100  # 80 fresh sagas and 20 requests
    assert deadlocks() == before


def test_tm03_workers_side_by_side_end_where_one_would(world: World) -> None:
    """Five embedded workers at once over the same: every body begins as often as with one, and logs agree."""
    mixed_states(world)
    world.calls.clear()
    before, start = deadlocks(), threading.Barrier(5)

    def work() -> None:
        worker = Embedded(DjangoStore("default"), concurrency=2)
        start.wait(20)
        worker.run(until_idle=True)

    for each in [Aside(work) for _ in range(5)]:
        each.join(40)
    drain()
    assert world.count() == {"book": 60 + 40, "charge": 60 + 40, "confirm": 60 + 40}
    assert SagaRow.objects.filter(status=Status.CANCELLED).count() == 20
    assert SagaRow.objects.filter(status=Status.COMPLETED).count() == 40 + 40 + 60
    assert Booking.objects.filter(step="confirm").count() == 140
    assert (deadlocks(), differences()) == (before, [])
