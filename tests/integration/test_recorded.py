"""After a lost acknowledgement the log says what was written, and nothing else (claim protocol, rule 4).

Both cases were found by the exhaustive check in `tests/modelcheck`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from msgspec import Raw
from msgspec.structs import replace

from sagas import machine
from sagas.events import Cancel, Event, Succeeded
from sagas.onward import next_delivery
from sagas.recorder import Recorder
from sagas.store import rows
from sagas.store.rows import Delivery, Recording
from sagas.worker import definition_of
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Room
from sagas_outbox.link import Link
from tests.shop.sagas import Externals
from tests.support.stories import begin, dedupe, entries, expire_leases, log_of

pytestmark = pytest.mark.usefixtures("shop")


@pytest.fixture
def wire(shop: str) -> Iterator[psycopg.Connection[Any]]:
    """A worker's own connection."""
    with DjangoStore("default").connect() as connection:
        yield connection


def take(wire: psycopg.Connection[Any], holder: str) -> Delivery:
    """Begin the one row that is due."""
    held = [held for held, _ in claims.lock_due(wire, [Room("default", 10)], begun=True, now=None)]
    (begun,) = rows.begin(wire, held, holder=holder, lease=30, published=False, now=None)
    assert isinstance(begun, Delivery)
    return begun


def decided(delivery: Delivery, event: Event) -> Recording:
    return Recording(delivery, machine.decide(Externals.plan, delivery.state, event), finished=False, goes_on=False)


def test_entry_of_another_row_is_not_taken_for_ones_own(wire: psycopg.Connection[Any]) -> None:
    """A cancel was recorded first, under the seq and the token that the worker looks for.

    Rows count their tokens each for itself. The worker believed that its result was recorded, and went on with
    the next step of a saga that was turning back.
    """
    saga = begin(Externals)
    step = take(wire, "worker:1")
    assert step.attempt is not None
    lost = decided(step, Succeeded(step.attempt, Raw(b"null")))  # sent, and the connection broke
    Externals.cancel(key="a", reason="changed their mind")
    cancel = take(wire, "worker:2")
    assert cancel.token == step.token
    applied = decided(cancel, Cancel())
    assert rows.record(wire, [applied], holder="worker:2", lease=30, now=None).keys() == {cancel.id}
    assert [entry.split()[0] for entry in log_of(saga)] == ["started", "cancel_requested"]
    assert rows.recorded(wire, [lost], holder="worker:1") == {}
    assert rows.recorded(wire, [applied], holder="worker:2") == {cancel.id: False}


def test_worker_goes_on_only_with_what_is_still_its_own(
    wire: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is in the log; by the time the worker finds it there, another one has begun the next step."""
    begin(Externals)
    held = take(wire, "worker:1")
    inner, taken = rows.record, []

    def cut(*args: Any, **named: Any) -> set[int]:
        written = inner(*args, **named)
        if not taken:
            expire_leases()
            taken.append(take(wire, "worker:2"))
            raise psycopg.OperationalError("the server closed the connection unexpectedly")
        return written

    monkeypatch.setattr(rows, "record", cut)
    assert held.attempt is not None
    with closing(Link(DjangoStore("default").connect)) as link:
        recorder = Recorder(link, definition_of, holder="worker:1", lease=30, goes_on=lambda *_: True)
        assert recorder.record([(held, Succeeded(held.attempt, Raw(b"null")))]) == []
    assert [each.attempt.step for each in taken if each.attempt] == ["two"]


def test_a_late_answer_stays_with_its_step(wire: psycopg.Connection[Any]) -> None:
    """What came late about one step is no argument for the compensation that the worker goes on with."""
    begin(Externals)
    step = replace(take(wire, "worker:1"), late=Raw(b'"late"'))
    assert step.attempt is not None
    done = replace(decided(step, Succeeded(step.attempt, Raw(b"null"))), goes_on=True)
    assert next_delivery(done, 0.0).late is None


def test_two_begins_of_one_row_in_one_process_are_told_apart(wire: psycopg.Connection[Any]) -> None:
    """A process that was frozen takes its own row over again, and both bodies come to their end at once: the second is
    recorded, and what the first brought is kept as a late answer is."""
    saga = begin(Externals)
    first = take(wire, "worker:1")
    expire_leases()
    second = take(wire, "worker:1")
    assert first.attempt is not None and second.attempt is not None and second.token > first.token
    with closing(Link(DjangoStore("default").connect)) as link:
        recorder = Recorder(link, definition_of, holder="worker:1", lease=5, goes_on=lambda *_: False)
        recorder.record([
            (first, Succeeded(first.attempt, Raw(b'"first"'))), (second, Succeeded(second.attempt, Raw(b'"second"'))),
        ])  # fmt: skip
    assert log_of(saga)[1].startswith("step_done")
    assert [each["result"] for each in (entry.data for entry in entries(saga)) if "result" in each] == ["second"]
    assert list(dedupe(saga).values()) == ["done"]


def test_a_server_that_turned_read_only_is_left(wire: psycopg.Connection[Any]) -> None:
    """After a failover the old connection may live on and refuse every write: the recorder takes another one."""
    saga = begin(Externals)
    delivery = take(wire, "worker:1")
    assert delivery.attempt is not None
    opened: list[psycopg.Connection[Any]] = []

    def connect() -> psycopg.Connection[Any]:
        opened.append(DjangoStore("default").connect())
        if len(opened) == 1:
            opened[0].execute("set default_transaction_read_only = on")
        return opened[-1]

    with closing(Link(connect)) as link:
        recorder = Recorder(link, definition_of, holder="worker:1", lease=30, goes_on=lambda *_: False)
        recorder.record([(delivery, Succeeded(delivery.attempt, Raw(b"null")))])
    assert len(opened) == 2
    assert log_of(saga)[1].startswith("step_done")
