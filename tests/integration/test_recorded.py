"""After a lost acknowledgement the log says what was written, and nothing else (claim protocol, rule 4).

Both cases were found by the exhaustive check in `tests/modelcheck`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from msgspec import Raw
from msgspec.structs import replace

from sagas import line, machine
from sagas.engine import SagaRun
from sagas.events import Cancel, Event, Succeeded
from sagas.line import Line, Ticket
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


@contextmanager
def refused(wire: psycopg.Connection[Any], saga: SagaRun, state: str, times: int) -> Iterator[None]:
    """What happened to one saga cannot be written so many times, because of an error of this kind."""
    wire.execute("create sequence tries")
    wire.execute(
        f"create function refuse() returns trigger language plpgsql as $$ begin"
        f" if new.saga_id = '{saga.id}' and nextval('tries') <= {times} then"
        f" raise 'as asked for' using errcode = '{state}'; end if; return new; end $$"
    )
    wire.execute("create trigger refuse before insert on sagas_log for each row execute function refuse()")
    try:
        yield
    finally:
        wire.execute("drop trigger refuse on sagas_log; drop function refuse(); drop sequence tries")


@pytest.mark.parametrize(
    ("state", "times", "in_the_end"),
    [
        ("54000", 1_000_000, []),
        ("54001", 1_000_000, []),
        ("57014", 2, ["step_done one"]),
        ("40001", 2, ["step_done one"]),
        ("58030", 2, ["step_done one"]),
    ],
)
def test_an_error_about_one_statement_is_none_of_the_connection(
    wire: psycopg.Connection[Any], state: str, times: int, in_the_end: list[str]
) -> None:
    """Psycopg calls them all operational errors. Too large, say, comes back each time: others are written without it;
    what passes, such as a statement that took too long, is tried again."""
    sagas = [begin(Externals, key) for key in "ab"]
    held = [held for held, _ in claims.lock_due(wire, [Room("default", 10)], begun=True, now=None)]
    begun = [
        each for each in rows.begin(wire, held, holder="worker:1", lease=30, published=False, now=None)
        if isinstance(each, Delivery)
    ]  # fmt: skip
    with refused(wire, sagas[0], state, times), closing(Link(DjangoStore("default").connect)) as link:
        recorder = Recorder(link, definition_of, holder="worker:1", lease=1, goes_on=lambda *_: False)
        recorder.record([(each, Succeeded(each.attempt, Raw(b"null"))) for each in begun if each.attempt])
    assert [log_of(saga)[1:] for saga in sagas] == [in_the_end, ["step_done one"]]


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


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_result_outlasts_a_server_that_is_away_for_longer_than_its_lease(
    wire: psycopg.Connection[Any], taken_over: bool
) -> None:
    """The worker lives and holds the answer: it is recorded when the server is back, or kept if another took over."""
    saga = begin(Externals)
    delivery = take(wire, "worker:1")
    assert delivery.attempt is not None
    began, refused = time.monotonic(), 0

    def connect() -> psycopg.Connection[Any]:
        nonlocal refused
        if time.monotonic() < began + 1.0:
            refused += 1
            raise psycopg.OperationalError("the server is starting up")
        if taken_over:
            expire_leases()
            take(wire, "worker:2")
        return DjangoStore("default").connect()

    with closing(Link(connect)) as link:
        recorder = Recorder(link, definition_of, holder="worker:1", lease=0.3, goes_on=lambda *_: False)
        recorder.record([(delivery, Succeeded(delivery.attempt, Raw(b'"paid"')))])
    assert refused > 2
    if taken_over:
        assert list(dedupe(saga).values()) == ["done"]
    else:
        assert log_of(saga)[1].startswith("step_done")


def test_a_result_that_had_to_queue_outlasts_it_too(wire: psycopg.Connection[Any]) -> None:
    """It came while another thread tried to reach the server, and its row was taken over before its first turn."""
    sagas = [begin(Externals, key) for key in "ab"]
    held = [held for held, _ in claims.lock_due(wire, [Room("default", 10)], begun=True, now=None)]
    first, second = (
        each for each in rows.begin(wire, held, holder="worker:1", lease=30, published=False, now=None)
        if isinstance(each, Delivery)
    )  # fmt: skip
    queues, back = threading.Event(), threading.Event()

    def connect() -> psycopg.Connection[Any]:
        queues.set()
        if not back.is_set():
            raise psycopg.OperationalError("the server is starting up")
        return DjangoStore("default").connect()

    with closing(Link(connect)) as link:
        recorder = Recorder(link, definition_of, holder="worker:1", lease=0.3, goes_on=lambda *_: False)
        threads = []
        for each in (first, second):
            assert each.attempt is not None
            threads.append(
                threading.Thread(target=recorder.record, args=([(each, Succeeded(each.attempt, Raw(b'"paid"')))],))
            )
            threads[-1].start()
            assert queues.wait(20)
        expire_leases()
        (taken,) = rows.begin(wire, [second.held], holder="worker:2", lease=30, published=False, now=None)
        time.sleep(0.5)  # the leases of both end
        back.set()
        for thread in threads:
            thread.join(20)
    assert isinstance(taken, Delivery) and log_of(sagas[0])[1].startswith("step_done")
    assert list(dedupe(sagas[1]).values()) == ["done"]


@pytest.mark.parametrize("waits", [True, False])
def test_a_thread_that_writes_for_others_comes_back(monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    """Nobody keeps up the leases of what it is to go on with, so another thread takes over: one of those that wait, or
    one elsewhere where what comes in is `async def`."""
    monkeypatch.setattr(line, "LONGEST_LEAD", 0.1)
    first, ended = threading.Event(), threading.Event()

    def serve(tickets: list[Ticket[Any]]) -> list[Ticket[Any]]:
        time.sleep(0.02)  # as a statement takes
        for ticket in tickets:
            ticket.finish()
        return []

    here: Line[Any] = Line(serve)

    def again_and_again() -> None:
        while not ended.is_set():
            here.wait(Ticket([], 0.0))

    def again(*_: Any) -> None:
        if not ended.is_set():
            here.join(Ticket([], 0.0, then=again, elsewhere=elsewhere))

    def elsewhere(function: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=function))
        threads[-1].start()

    def once() -> None:
        here.wait(Ticket([], 0.0))
        first.set()

    threads = [threading.Thread(target=once), *(threading.Thread(target=again_and_again) for _ in range(4 * waits))]
    for thread in list(threads):
        thread.start()
    if not waits:
        again()
    try:
        assert first.wait(20)
    finally:
        ended.set()
        for thread in threads:
            thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
