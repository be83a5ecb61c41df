"""How many rows the statements that run all the time read, in front of a few thousand rows and of very many.

Postgres counts for each table and index what it reads, also inside functions such as that of `start()`, which a plan
from outside does not show. The counts of one transaction are looked at around each statement.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection as django_connection
from django.db import transaction

from sagas import KEEP, Retry, Saga, external_step
from sagas.desk import StoreDesk
from sagas.keys import idempotency_key
from sagas.reconcile import Verdict, compare, lacking
from sagas.reconcile_lists import Effect
from sagas.retention import Old, keys_ahead, prune_batch, prune_keys
from sagas.schedules import firing, table
from sagas.settings import Settings
from sagas.testing.moving import Clock
from sagas.worker import Worker
from sagas_django.operate import DjangoDesk
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Ask, Lane, Room
from sagas_outbox.queries import query
from sagas_outbox.queries import run as execute
from tests.benchmarks.filling import fill_due, fill_finished, fill_past
from tests.shop.going_on import Poll
from tests.shop.sagas import Ordered
from tests.shop.waiting import Review, Reviewed
from tests.support.schedules import at, declared
from tests.support.workers import one_worker

BATCH = 5  # rows in one statement; for many more of a few thousand it is right to read a table whole
MOST = 200  # rows that such a statement may read of all tables and indexes together
OLDEST = 4 * 5000 + MOST  # due_of.sql looks at so many of a lane, in two indexes and two tables
PAGES = 1000  # looks at a page, of a few rows; all that 3,000 sagas left behind are some 8,000
DAY = 86_400.0  # seconds
HEX = "{:032x}".format
COUNTED = """
select c.relname, pg_stat_get_xact_{}(c.oid) from pg_class c
where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'i') and c.relname like 'sagas\\_%'
"""
# sagas do not end in the order in which they were started
SHUFFLE = """
update sagas_saga set finished_at = finished_at - interval '1 day' * (1 + abs(hashtext(key) % 50))
where finished_at is not null
"""
# statements of every saga, every look for work, every tick and every pass of the pruner
HOT = {
    "start", "get", "claim", "due", "due_of", "queues", "begin", "record", "record_plain", "next_signals", "send",
    "heartbeat", "hand_back", "release", "unbegun", "prune", "prune_left", "prune_keys", "schedule_due",
    "schedule_wait",
}  # fmt: skip


class Plain(Saga[int], name="test.rows_read", version=1):
    """Three steps that do nothing, or fail."""

    @external_step(compensate=None, retry=Retry(max_attempts=1))
    def first(self) -> None:
        if self.input == 2:
            raise ValueError("as asked for")

    @external_step(compensate=None)
    def second(self) -> None: ...

    @external_step(pivot=True)
    def third(self) -> None: ...


def first_line(text: str) -> str:
    """What tells a statement from the others, whichever way its parameters are written."""
    return re.split(r"[%$]", text.splitlines()[0])[0]


NAMES = {
    first_line(path.read_text()): path.name.removesuffix(".sql")
    for package in ("sagas.store", "sagas_outbox")
    for path in files(package).joinpath("sql").iterdir()
}


class Reads:
    """What each of our statements read at most: of which table or index how much.

    Args:
        monkeypatch: for as long as this lasts.
        most: what a statement may read.
        what: what is counted, as Postgres names it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int = MOST, what: str = "tuples_returned") -> None:
        self._most, self._query = most, COUNTED.format(what)
        self.most: dict[str, dict[str, int]] = {}
        self._execute = execute = psycopg.Cursor.execute

        def counting(cursor: psycopg.Cursor[Any], query: Any, *arguments: Any, **options: Any) -> Any:
            name = NAMES.get(first_line(str(query)))
            if name is None:
                return execute(cursor, query, *arguments, **options)
            with cursor.connection.transaction():  # whose counts are kept to its end
                before = self._counts(cursor.connection)
                answer = execute(cursor, query, *arguments, **options)
                self._note(name, before, self._counts(cursor.connection))
            return answer

        monkeypatch.setattr(psycopg.Cursor, "execute", counting)

    def _counts(self, connection: psycopg.Connection[Any]) -> dict[str, int]:
        return dict(self._execute(psycopg.Cursor(connection), self._query).fetchall())

    def _note(self, name: str, before: dict[str, int], after: dict[str, int]) -> None:
        read = {table: count - before.get(table, 0) for table, count in after.items() if count > before.get(table, 0)}
        if sum(read.values()) >= sum(self.most.get(name, {}).values()):
            self.most[name] = read

    @property
    def too_many(self) -> dict[str, dict[str, int]]:
        """Statements that read more than they should."""
        return {
            name: read
            for name, read in self.most.items()
            if sum(read.values()) > (OLDEST if name == "due_of" else self._most)
        }


def start(key: str, number: int = 1) -> None:
    with transaction.atomic():
        Plain.start(number, key=key)


@contextmanager
def filled(due: int, finished: int) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database with so many due rows, and sagas that ended long ago."""
    start("model")
    with closing(DjangoStore("default").connect()) as connection:
        # what a former test has deleted: behind a million rows vacuum leaves so little in the indexes
        connection.execute("vacuum (index_cleanup on) sagas_outbox")
        fill_due(connection, name=Plain.saga_name, key="model", count=due)
        fill_finished(connection, Plain, finished, days=200)
        connection.execute(SHUFFLE)
        connection.execute("vacuum analyze sagas_saga")
        yield connection


@pytest.mark.parametrize("size", [3_000, pytest.param(1_000_000, marks=pytest.mark.full)])
@pytest.mark.usefixtures("shop", "quiet")
def test_no_hot_statement_reads_more_than_its_work(
    size: int, monkeypatch: pytest.MonkeyPatch, time_machine: Clock
) -> None:
    """Whatever waits and whatever has ended: each reads the rows that it is about, and some of their neighbours."""
    with filled(size, size) as connection, one_worker() as worker, declared() as schedule:
        reads = Reads(monkeypatch)
        for number in range(10):  # a function's plans are made for any parameters after a few calls
            start(f"fresh-{number}")
            start(f"fresh-{number}")
            Plain.get(id=Plain.get(key=f"fresh-{number}").id)
        claim_and_give_back(connection)
        run(worker, connection)
        signalled(worker, connection)
        keep(connection)
        time_machine.move_to(at(5.5))
        table.declare(connection, schedule)
        firing.seconds_left(connection, [schedule])
        firing.fire_due(connection, Settings(wake=False), [schedule])
    assert reads.most.keys() >= HOT
    assert reads.too_many == {}, {n: {k: v for k, v in r.items() if v > 50} for n, r in reads.too_many.items()}


def tuples(cursor: Any) -> int:
    """How many rows this transaction has read of our tables and indexes."""
    cursor.execute(COUNTED.format("tuples_returned"))
    return sum(count for _, count in cursor.fetchall())


@pytest.mark.usefixtures("shop", "quiet")
def test_a_list_by_status_reads_no_more_than_it_shows() -> None:
    """The partial indexes know which sagas are open, parked, or have ended otherwise than they should."""
    statuses = ["running", "parked", "aborted"]
    with filled(0, 3_000) as connection:
        for number, status in enumerate(statuses):
            start(status)
            parked_from, ends = ("running" if status == "parked" else None), (status == "aborted")
            connection.execute(
                "update sagas_saga set status = %s, parked_from = %s, finished_at = case when %s then updated_at end,"
                " id = %s where key = %s",
                [status, parked_from, ends, UUID(int=number), status],
            )  # older than what has ended
        connection.execute("vacuum analyze sagas_saga")
        desk, store_desk = DjangoDesk("default"), StoreDesk(DjangoStore("default"), command="", remedy="")
        for wanted in (["parked"], ["running"], ["aborted", "cancelled"], ["running", "parked"]):
            with transaction.atomic(), django_connection.cursor() as cursor, store_desk.using.transaction():
                before = tuples(cursor)
                shown = {saga.key for saga in desk.sagas(limit=20, statuses=wanted)} - {"model"}
                assert (shown, tuples(cursor) - before < MOST) == (set(wanted) & set(statuses), True), wanted
                before = tuples(raw := store_desk.using.cursor())
                shown = {saga.key for saga in store_desk.sagas(limit=20, statuses=wanted)} - {"model"}
                assert (shown, tuples(raw) - before < MOST) == (set(wanted) & set(statuses), True), wanted
        store_desk.close()


BURIED = """
insert into sagas_tombstone (name, key, run, saga_id, version, status, input_hash, finished_at)
select 'gone', n::text, 1, gen_random_uuid(), 1, 'completed', '', now() - interval '1 day' * n
from generate_series(1, 2000) n
"""


@pytest.mark.usefixtures("shop", "quiet")
def test_keys_are_forgotten_in_one_passage() -> None:
    """Whoever forgets many reads no key again with each batch, not those that stay either."""
    with closing(DjangoStore("default").connect()) as connection, connection.transaction():
        connection.execute(BURIED)
        before = tuples(connection.cursor())
        assert list(prune_keys(connection, age=999.5 * DAY, limit=100)) == [100] * 10 + [1]
        assert tuples(connection.cursor()) - before < 2_500


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.usefixtures("shop", "quiet")
def test_all_keys_of_one_name_are_forgotten(known: bool) -> None:
    """In one passage too, in whatever order they lie in the table, and whatever the planner knows of it."""
    with closing(DjangoStore("default").connect()) as connection, connection.transaction(force_rollback=True):
        connection.execute(BURIED)
        connection.execute("update sagas_tombstone set name = case key::int % 2 when 0 then 'a' else 'b' end")
        if known:
            connection.execute("analyze sagas_tombstone")
        before = tuples(connection.cursor())
        assert list(prune_keys(connection, age=0, name="a", limit=100)) == [100] * 10
        assert tuples(connection.cursor()) - before < 2_500
        assert (keys_ahead(connection, age=0, name="a"), keys_ahead(connection, age=0)) == (0, 1_000)


@pytest.mark.usefixtures("shop", "quiet")
def test_a_list_of_the_other_side_reads_no_table_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not here is looked for together; logs are read of sagas that something happened to since then."""
    with filled(0, 3_000) as connection:
        connection.execute(BURIED)
        connection.execute("analyze sagas_tombstone, sagas_log")
        (model,) = connection.execute("select id from sagas_saga where key = 'model'").fetchone() or ()
        (gone,) = connection.execute("select saga_id from sagas_tombstone where key = '7'").fetchone() or ()
        effects = [Effect(key=idempotency_key(id, "first")) for id in (model, gone, *map(UUID, map(HEX, range(40))))]
        reads = Reads(monkeypatch)
        found = list(compare(connection, effects))
        assert Counter(match.verdict for match in found) == {
            Verdict.AHEAD: 1, Verdict.PRUNED: 1, Verdict.VANISHED: 40,
        }  # fmt: skip
        assert not list(lacking(connection, found, since=datetime.now(UTC) - timedelta(minutes=5), until=None))
    read = Counter[str]()
    for counts in reads.most.values():
        read.update(counts)
    assert read["sagas_tombstone"] <= 2_000
    assert read["sagas_log"] + read["sagas_log_pkey"] < MOST


@pytest.mark.usefixtures("shop", "quiet")
def test_an_old_transaction_makes_no_statement_read_what_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vacuum found the outbox all but empty and full of what it could not remove: an index read whole looks as cheap
    to the planner as one row by its id, and is not."""
    with one_worker() as worker, closing(DjangoStore("default").connect()) as connection:
        start("model")
        with closing(DjangoStore("default").connect()) as old, old.transaction():
            old.execute("set transaction isolation level repeatable read")
            old.execute("select count(*) from sagas_outbox")
            fill_past(connection, name=Plain.saga_name, key="model", count=3_000)
            reads = Reads(monkeypatch, PAGES, "blocks_fetched")
            for number in range(BATCH):
                start(f"fresh-{number}")
            run(worker, connection)
    assert reads.most.keys() >= {"start", "due", "begin", "record", "record_plain"}
    assert reads.too_many == {}, {n: {k: v for k, v in r.items() if v > 50} for n, r in reads.too_many.items()}


REFILL = """
insert into sagas_outbox (saga_id, kind, step, direction, queue, lane)
select gen_random_uuid(), 'step', 'first', 'do', 'default', 0 from generate_series(1, 3000)
"""


@pytest.mark.parametrize("line", [None, "a line"], ids=["record_plain", "record"])
@pytest.mark.usefixtures("shop", "quiet")
def test_record_reads_no_outbox_that_has_filled_since_the_last_vacuum(
    line: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That found one row, and the planner expects no more; what was asked of the run before, and the rows that are to
    be woken, are looked up all the same."""
    with filled(3_000, 0) as connection, one_worker(goes_on=True) as worker:
        with transaction.atomic():
            Poll.start(Ordered(), key="polled", ordering_key=line)
        work_off(worker, connection, "polled")
        assert Poll.get(key="polled").run == 2
        connection.execute("delete from sagas_outbox where step = 'first'")
        connection.execute("delete from sagas_saga where name = %s", [Plain.saga_name])
        connection.execute("vacuum analyze sagas_outbox, sagas_saga")
        connection.execute(REFILL)
        reads = Reads(monkeypatch)
        work_off(worker, connection, "polled")
        assert Poll.get(key="polled").run == 3
    assert ("record" if line else "record_plain") in reads.most
    assert reads.too_many == {}


@pytest.mark.usefixtures("shop", "quiet")
def test_a_start_that_lost_an_index_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the index of early signals, the function of `start()` reads the outbox whole: the test above can fail."""
    with filled(3_000, 0):
        reads = Reads(monkeypatch)
        start("with")
        assert reads.too_many == {}
        with transaction.atomic(), django_connection.cursor() as cursor:
            cursor.execute("drop index sagas_outbox_signals")
            start("without")
            assert reads.too_many.keys() == {"start"}
            assert reads.too_many["start"]["sagas_outbox"] > 3_000
            transaction.set_rollback(True)


def claim_and_give_back(connection: psycopg.Connection[Any]) -> None:
    """What a relay asks, and a worker that gives back what it begins."""
    claims.lanes(connection, now=None)
    claimed = claims.claim(connection, [Room("default", BATCH)], holder="relay:a", window=10, begun=True, now=None)
    held = [(each.id, each.token) for each in claimed]
    claims.unbegun(connection, [id for id, _ in held], holder="relay:a")
    claims.heartbeat(connection, held, holder="relay:a", lease=30, now=None)
    claims.release(connection, held, holder="relay:a", delay=0, now=None)
    claims.hand_back(connection, held, holder="relay:a", now=None)
    with connection.transaction():
        claims.lock_due_of(connection, [Room("default", BATCH)], work=["test.other first do"], but=True, begun=True,
                           now=None)  # fmt: skip


def run(worker: Worker, connection: psycopg.Connection[Any]) -> None:
    """A batch of plain steps, and one that turns back."""
    with connection.transaction():
        rows = claims.lock_due(connection, [Room("default", BATCH)], begun=True, now=None)
        begun = worker.begin(connection, [held for held, _ in rows], published=False)
    worker.run(worker.take_up(begun))
    start("fails", 2)
    work_off(worker, connection, "fails")


def work_off(worker: Worker, connection: psycopg.Connection[Any], *keys: str) -> None:
    """In one batch, what is due of the sagas with these keys."""
    with connection.transaction():
        rows = connection.execute(
            "select o.id, o.token from sagas_outbox o join sagas_saga s on s.id = o.saga_id where s.key = any(%s)",
            [list(keys)],
        ).fetchall()
        begun = worker.begin(connection, rows, published=False)
    worker.run(worker.take_up(begun))


def signalled(worker: Worker, connection: psycopg.Connection[Any]) -> None:
    """A signal that is sent before its saga is there, and applied when it is."""
    with transaction.atomic():
        Reviewed.review.send(Review(True, "fine"), key="a", missing=KEEP)
    for _ in range(3):
        with connection.transaction():
            lane = Ask(Lane("default"), BATCH)
            rows = claims.lock_due(connection, [Room("default", BATCH, asks=[lane])], begun=True, now=None)
            begun = worker.begin(connection, [held for held, _ in rows], published=False)
        worker.run(worker.take_up(begun))
    claims.next_signals(connection, ["test.reviewed a"], now=None)


def keep(connection: psycopg.Connection[Any]) -> None:
    """What the pruner does in a pass."""
    assert len(prune_batch(connection, Old(age=90 * DAY, archive=True), limit=BATCH)) == BATCH
    execute(connection, query("sagas.store", "prune_left"), {"limit": BATCH})
    assert next(prune_keys(connection, age=90 * DAY, limit=BATCH)) == BATCH
