"""What becomes of sagas that ended long ago: archived, removed in small batches, their keys kept."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from sagas import KeyConflict, OnExisting, Refused, SagaNotFound, retention
from sagas.archiving import move_archive
from sagas.errors import InvalidInput
from sagas.retention import Batches, Old, Pruner, prune, prune_batch, prune_keys
from sagas_django.models import DedupeRecord, LogEntry, OutboxRow, SagaRow
from sagas_django.store import DjangoStore
from tests.shop.families import Grand
from tests.shop.sagas import Charge, Externals, Ordered, Trip
from tests.shop.waiting import Review, Reviewed
from tests.shop.world import World
from tests.support.stories import begin, begin_many, drain, entries
from tests.support.waiting import wait_until_blocked

pytestmark = pytest.mark.usefixtures("shop")

YEAR = timedelta(days=365).total_seconds()


def sql(statement: str, *given: object) -> list[tuple[Any, ...]]:
    """One statement, and what it returns."""
    with connection.cursor() as cursor:
        cursor.execute(statement, given or None)
        return cursor.fetchall() if cursor.description else []


def age(key: str | None = None) -> None:
    """Let sagas have ended a year ago."""
    sql("update sagas_saga set finished_at = finished_at - interval '1 year' where coalesce(%s, key) = key", key)


def pruned(age: float = YEAR / 2, limit: int = 200) -> list[int]:
    """Prune all that ended half a year ago; the size of each batch."""
    with DjangoStore("default").connect() as raw:
        return list(prune(raw, Old(age=age, archive=True), Batches(limit)))


def test_a_pruned_saga_is_gone_and_archived(world: World) -> None:
    """Its row, its log and its dedupe lines leave together; the archive has all of them."""
    world.plan("charge", Refused("no"))
    saga = begin(Charge, "old")
    drain()
    begin(Externals, "young")
    drain()
    kinds = [entry.kind for entry in entries(saga)]
    age("old")
    assert pruned() == [1]
    assert [row.key for row in SagaRow.objects.all()] == ["young"]
    assert not LogEntry.objects.filter(saga_id=saga.id).exists()
    assert not DedupeRecord.objects.filter(saga_id=saga.id).exists()
    ((data, status),) = sql("select data::text, status from sagas_archive")
    found = json.loads(data)
    assert found["saga"]["id"] == str(saga.id) and found["saga"]["status"] == status
    assert [line["kind"] for line in found["log"]] == kinds
    assert found["log"][0]["data"]["saga"]["input"] == {"number": 0}
    assert pruned() == []


def test_a_key_is_known_after_its_saga_is_pruned(world: World) -> None:
    """A late `start()` finds the saga that was, whatever it says about existing ones; nothing is started."""
    saga = begin(Trip, "order-7")
    drain()
    age()
    pruned()
    again = begin(Trip, "order-7")
    assert (again.id, again.created, again.status, again.run) == (saga.id, False, "completed", 1)
    with transaction.atomic(), pytest.raises(KeyConflict):
        Trip.start(Ordered(), key="order-7", on_existing=OnExisting.RAISE)
    with pytest.raises(KeyConflict):
        begin(Trip, "order-7", Ordered(number=9))
    assert SagaRow.objects.count() == 0 and OutboxRow.objects.count() == 0
    with pytest.raises(SagaNotFound):
        Trip.get(key="order-7")
    assert begin(Trip, "order-8").created


def test_a_new_run_after_a_pruned_one(world: World) -> None:
    """`NEW_IF_COMPENSATED` counts runs on, however many of them are pruned, and in whichever order."""
    again = {"key": "again", "on_existing": OnExisting.NEW_IF_COMPENSATED}
    for run in (1, 2):
        world.plan("charge", Refused("no"))
        with transaction.atomic():
            assert Charge.start(Ordered(), **again).run == run  # type: ignore[arg-type]
        drain()
    sql("update sagas_saga set finished_at = finished_at - interval '1 year' where run = 1")
    assert pruned() == [1]
    with transaction.atomic():
        third = Charge.start(Ordered(), **again)  # type: ignore[arg-type]
    assert (third.run, third.created) == (3, True)
    drain()
    age()
    assert pruned() == [2]
    with transaction.atomic():
        found = Charge.start(Ordered(), **again)  # type: ignore[arg-type]
    assert (found.id, found.created, found.status) == (third.id, False, "completed")


def test_a_key_that_nobody_chose_leaves_nothing(world: World) -> None:
    """It was the saga's own id: it cannot come again, so nothing is kept of it."""
    with transaction.atomic():
        Externals.start(Ordered())
    drain()
    age()
    assert pruned() == [1]
    assert sql("select count(*) from sagas_tombstone") == [(0,)]


def test_keys_may_be_forgotten(world: World) -> None:
    """Only where that is asked for; then a key starts a new saga."""
    begin(Externals, "k")
    drain()
    age()
    pruned()
    with DjangoStore("default").connect() as raw:
        assert list(prune_keys(raw, age=2 * YEAR)) == []
        assert list(prune_keys(raw, age=YEAR / 2)) == [1]
    assert begin(Externals, "k").created


def test_a_key_stays_while_a_later_run_of_it_is_there(world: World) -> None:
    """Else it would start a new saga beside the one that has not ended: run 1 once more."""
    again = {"key": "again", "on_existing": OnExisting.NEW_IF_COMPENSATED}
    world.plan("charge", Refused("no"))
    with transaction.atomic():
        Charge.start(Ordered(), **again)  # type: ignore[arg-type]
    drain()
    age()
    assert pruned() == [1]
    with transaction.atomic():
        second = Charge.start(Ordered(), **again)  # type: ignore[arg-type]
    with DjangoStore("default").connect() as raw:
        assert list(prune_keys(raw, age=0)) == []
    found = begin(Charge, "again")
    assert (found.id, found.created, found.run) == (second.id, False, 2)
    drain()
    sql("update sagas_saga set finished_at = finished_at - interval '2 minutes'")
    pruned(age=60)
    with DjangoStore("default").connect() as raw:
        assert list(prune_keys(raw, age=3600)) == []  # of run 1, while that of run 2 is not old enough
        assert list(prune_keys(raw, age=0)) == [2]


def test_what_has_not_ended_is_never_pruned(world: World) -> None:
    """Nor what has a request on its way, nor a parent whose children have not ended, nor they while it has not."""
    begin(Reviewed, "waits")
    begin(Externals, "asked")
    begin(Externals, "parent")
    begin(Externals, "child")
    drain()
    sql("insert into sagas_outbox (saga_id, kind, queue, due_at) select id, 'retry', 'nowhere', clock_timestamp()"
        " + interval '1 day' from sagas_saga where key = 'asked'")  # fmt: skip
    sql("update sagas_saga set parent = (select id from sagas_saga where key = 'waits') where key = 'child'")
    sql("update sagas_saga set parent = (select id from sagas_saga where key = 'parent') where key = 'waits'")
    age()
    assert pruned() == []
    assert SagaRow.objects.count() == 4


def test_what_an_open_saga_may_have_to_undo_is_never_pruned(world: World) -> None:
    """Also what its child's child has done, whose own parent has ended long ago."""
    left: list[int] = []

    def fail(run: Any) -> None:
        age()
        left.extend(pruned())
        raise Refused("no thanks")

    world.plan("thank", fail)
    begin(Grand)
    drain()
    assert left == []
    assert Grand.get(key="a").status == "compensated"
    assert [name for name in world.names if name in ("unpack", "give_back", "let_go", "release")] == [
        "unpack", "give_back", "let_go", "release",
    ]  # fmt: skip
    age()
    assert sum(pruned()) == 3


def test_the_command_waits_for_whoever_else_prunes(world: World) -> None:
    """A relay's pruner holds it up for a moment; it does not take that for nothing being left."""
    begin_many(Externals, ["a", "b"])
    drain()
    age()
    found: list[int] = []
    with DjangoStore("default").connect() as other:
        with other.transaction():
            other.execute("select pg_advisory_xact_lock(7236, hashtext('sagas.prune' || current_schema()))")
            thread = threading.Thread(target=lambda: found.extend(pruned()))
            thread.start()
            wait_until_blocked(1)
        thread.join(20)
    assert found == [2]


OURS = b'{"of": "ours"}\n'


@pytest.mark.parametrize("before", [
    b"", b'{"of": "somebody else"}', OURS + b'{"id" : "0199a1c4-7c1e-7b4a-9d53", "na', OURS + b'{"i\0\0',
])  # fmt: skip
def test_every_line_of_an_archive_can_be_read(world: World, tmp_path: Path, before: bytes) -> None:
    """Also after a crash in the middle of one, whose saga is still in the database."""
    begin_many(Externals, ["a", "b"])
    drain()
    age()
    pruned()
    file = tmp_path / "archive.jsonl"
    file.write_bytes(before)
    with DjangoStore("default").connect() as raw:
        assert list(move_archive(raw, file)) == [2]
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert len(lines) == 2 + (b"of" in before)
    assert file.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("before", [b"notes, no newline", OURS + b'{"torn": "by somebody el'])
def test_what_is_no_archive_stays_as_it_is(world: World, tmp_path: Path, before: bytes) -> None:
    """A name that was mistyped costs nobody the end of their file."""
    archive_two()
    file = tmp_path / "notes"
    file.write_bytes(before)
    with DjangoStore("default").connect() as raw, pytest.raises(InvalidInput, match="notes: it is no archive"):
        list(move_archive(raw, file))
    assert file.read_bytes() == before
    assert sql("select count(*) from sagas_archive") == [(2,)]


def test_two_at_once_do_not_write_to_one_file(world: World, tmp_path: Path) -> None:
    """Not while the other is at it, in whatever process; then it may."""
    archive_two()
    file = tmp_path / "archive.jsonl"
    with DjangoStore("default").connect() as raw:
        first = move_archive(raw, file, limit=1)
        assert next(first) == 1
        with pytest.raises(InvalidInput, match="somebody else is moving the archive to it"):
            list(move_archive(raw, file))
        assert list(first) == [1]
        assert list(move_archive(raw, file)) == []
    assert len([json.loads(line) for line in file.read_bytes().splitlines()]) == 2


def archive_two() -> None:
    """There are two sagas in the archive."""
    begin_many(Externals, ["a", "b"])
    drain()
    age()
    assert pruned() == [2]


def test_a_signal_for_a_pruned_saga_is_dropped(world: World) -> None:
    """A webhook that comes months late neither fails nor waits for a saga that will not come."""
    world.plan("pay", Refused("no"))
    begin(Reviewed, "seen")
    drain()
    Reviewed.review.send(Review(ok=True), key="seen", dedupe_id="hook-1")
    drain()
    assert sql("select count(*) from sagas_signal") == [(1,)]
    age()
    assert pruned() == [1]
    assert sql("select count(*) from sagas_signal") == [(0,)]
    Reviewed.review.send(Review(ok=True), key="seen", dedupe_id="hook-1")
    assert OutboxRow.objects.count() == 0 and sql("select count(*) from sagas_signal") == [(0,)]


def test_start_and_prune_at_the_same_time(world: World) -> None:
    """A `start()` that waits for the row which is being pruned does not start the saga a second time."""
    saga = begin(Externals, "race")
    drain()
    age()
    with DjangoStore("default").connect() as pruning, DjangoStore("default").connect() as watching:
        found: list[Any] = []

        def start() -> None:
            from django.db import connections

            try:
                found.append(begin(Externals, "race"))
            finally:
                connections.close_all()

        with pruning.transaction():
            assert prune_batch(pruning, Old(age=YEAR / 2, archive=True)) == [saga.id]
            starter = threading.Thread(target=start)
            starter.start()
            waiting = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            for _ in range(2000):
                if watching.execute(waiting).fetchone() or found:
                    break
                starter.join(0.01)
        starter.join(20)
    assert [(each.id, each.created) for each in found] == [(saga.id, False)]
    assert SagaRow.objects.count() == 0


def test_batches_are_bounded_and_locked_rows_left_out(world: World) -> None:
    """One statement takes as many as it is told, and does not wait for what somebody else has locked."""
    begin_many(Externals, [f"b-{number}" for number in range(7)])
    drain()
    age()
    with DjangoStore("default").connect() as other, other.transaction():
        other.execute("select from sagas_saga where key = 'b-3' for update")
        assert pruned(limit=3) == [3, 3]
    assert pruned(limit=3) == [1]


def test_the_log_is_safe_from_others_while_it_is_pruned() -> None:
    """Pruning lets nobody else delete history: what allows it ends with its own statement."""
    begin(Externals, "kept")
    with DjangoStore("default").connect() as raw:
        prune_batch(raw, Old(age=YEAR, archive=True))
        with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
            raw.execute("delete from sagas_log")


def test_the_pruner_prunes_by_itself(world: World, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a relay or a worker, by the settings, in small batches."""
    monkeypatch.setattr(retention, "SHARE", 0.5)  # else it rests for long on a machine that is slow
    settings.SAGAS = {"WAKE": False, "PRUNE_AFTER_DAYS": 30, "ARCHIVE": False}
    begin_many(Externals, [f"p-{number}" for number in range(12)])
    drain()
    sql("update sagas_saga set finished_at = finished_at - interval '31 days' where key <> 'p-5'")
    pruner, done, seen = Pruner(DjangoStore("default"), idle=0.05), threading.Event(), list[int]()

    def on_pass(count: int) -> None:
        seen.append(count)
        if not count:
            done.set()

    pruner.on_pass = on_pass
    pruner.start()
    try:
        assert done.wait(60)
    finally:
        pruner.stop()
    assert [row.key for row in SagaRow.objects.all()] == ["p-5"]
    assert sum(seen) == 11 and max(seen) <= 10
    assert sql("select count(*) from sagas_archive") == [(0,)]


def test_the_pruner_keeps_to_its_share(world: World) -> None:
    """After each batch it rests for so long that all of it takes a twentieth of the time of one connection, or less."""
    begin_many(Externals, [f"s-{number}" for number in range(5)])
    drain()
    age()
    pruner = Pruner(DjangoStore("default"))
    with DjangoStore("default").connect() as raw:
        before = raw.execute("select clock_timestamp()").fetchone()
        rest = pruner.run_once()
        took = raw.execute("select extract(epoch from clock_timestamp() - %s)::float8", before).fetchone()
    pruner.stop()
    assert took is not None and 0 < rest <= 40 * took[0]
    assert SagaRow.objects.count() == 0


@pytest.fixture
def held() -> Iterator[None]:
    """A table of somebody's own refers to the saga `b-3`, so that it cannot be removed."""
    begin_many(Externals, [f"b-{number}" for number in range(8)])
    drain()
    age()
    sql("create table keeps as select id from sagas_saga where key = 'b-3'")
    sql("alter table keeps add foreign key (id) references sagas_saga")
    yield
    sql("drop table keeps")


def test_one_that_cannot_be_pruned_does_not_keep_the_others(
    world: World, held: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The batches of a pruner get smaller until it stands alone; it is named, and left out."""
    pruner = Pruner(DjangoStore("default"))
    for _ in range(20):
        with suppress(psycopg.Error):
            pruner.run_once()
    pruner.stop()
    assert [row.key for row in SagaRow.objects.all()] == ["b-3"]
    assert ["(key 'b-3') cannot be pruned" in line for line in caplog.messages] == [True]


def test_the_command_names_those_that_cannot_be_pruned(world: World, held: None) -> None:
    """And prunes the others."""
    with pytest.raises(CommandError, match="1 sagas could not be pruned"):
        said("prune")
    assert [row.key for row in SagaRow.objects.all()] == ["b-3"]


@pytest.fixture
def all_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """More sagas that cannot be removed than a statement passes over one by one, and one that can, which ended last."""
    monkeypatch.setattr(retention, "MOST", 3)
    begin_many(Externals, [f"h-{number}" for number in range(8)])
    drain()
    begin(Externals, "free")
    drain()
    age()
    sql("update sagas_saga set finished_at = (select min(finished_at) from sagas_saga)"
        " where key in ('h-1', 'h-2', 'h-3', 'h-4', 'h-5')")  # as many as that in one moment  # fmt: skip
    sql("create table keeps as select id from sagas_saga where key <> 'free'")
    sql("alter table keeps add foreign key (id) references sagas_saga")
    yield
    sql("drop table keeps")


def test_however_many_cannot_be_pruned_the_others_are(
    world: World, all_held: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a pause for each; they are not tried again before a day has passed."""
    monkeypatch.setattr(retention, "SHARE", 0.5)
    pruner = Pruner(DjangoStore("default"))
    try:
        rests = [pruner.run_once() for _ in range(20)]
        assert max(rests[:9]) < retention.IDLE
        assert {row.key for row in SagaRow.objects.all()} == {f"h-{number}" for number in range(8)}
        assert len([line for line in caplog.messages if "cannot be pruned" in line]) == 8
        pruner._batches.began -= 2 * retention.DAY
        for _ in range(12):
            pruner.run_once()
        assert len([line for line in caplog.messages if "cannot be pruned" in line]) == 16
    finally:
        pruner.stop()


def test_the_command_names_all_that_cannot_be_pruned(world: World, all_held: None) -> None:
    """However many they are."""
    err = io.StringIO()
    with pytest.raises(CommandError, match="8 sagas could not be pruned, listed above"):
        call_command("sagas", "prune", stdout=io.StringIO(), stderr=err, skip_checks=True)
    assert err.getvalue().count("cannot be pruned: ") == 8
    assert SagaRow.objects.count() == 8


REFUSE = """
create or replace function refuse() returns trigger language plpgsql as $$ begin raise 'not today'; end $$;
create trigger refuse before delete on sagas_outbox for each row execute function refuse()
"""
ORPHAN = """
insert into sagas_outbox (saga_id, kind, queue, due_at, timer_at)
select gen_random_uuid(), 'cancel', 'q', t, t - interval '2 hours' from clock_timestamp() as t
"""


@pytest.fixture
def refused() -> Iterator[None]:
    """A request that cannot be removed."""
    sql(ORPHAN)
    sql(REFUSE)
    yield
    sql("drop trigger refuse on sagas_outbox")


def test_a_pruner_that_gets_nothing_done_says_so(world: World, refused: None) -> None:
    """Each time: with no saga to blame there is nothing to leave out."""
    pruner = Pruner(DjangoStore("default"))
    pruner.run_once()  # of several
    try:
        for _ in range(3):
            with pytest.raises(psycopg.errors.RaiseException, match="not today"):
                pruner.run_once()
    finally:
        pruner.stop()


def test_who_is_to_blame_is_not_looked_for_without_end(
    world: World, refused: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the same search, and may take as long as the pruning itself, and no longer."""
    seen: list[tuple[Any, ...]] = []

    def look(batches: Batches, raw: psycopg.Connection[Any], *_: object) -> bool:
        seen.extend(raw.execute("select current_setting('statement_timeout'), current_setting('lock_timeout')"))
        return False

    monkeypatch.setattr(Batches, "leave_out", look)
    pruner = Pruner(DjangoStore("default"))
    pruner._batches.size = 1
    with pytest.raises(psycopg.errors.RaiseException):
        pruner.run_once()
    pruner.stop()
    assert seen == [("10s", "500ms")]


def test_the_command_says_why_it_stopped(world: World, held: None, refused: None) -> None:
    """After those that could not be pruned."""
    err = io.StringIO()
    with pytest.raises(CommandError, match="pruning stopped: not today"):
        call_command("sagas", "prune", stdout=io.StringIO(), stderr=err, skip_checks=True)
    assert "(key 'b-3') cannot be pruned" in err.getvalue()


def test_one_slow_pass_is_not_the_fault_of_a_saga(world: World) -> None:
    """Only one that takes too long twice is left out: the first time the server may have been slow."""
    begin_many(Externals, "ab")
    drain()
    age()
    batches, slow = Batches(1), psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
    with DjangoStore("default").connect() as raw:
        for left_out in (0, 1, 1, 2):
            assert batches.leave_out(raw, Old(age=YEAR / 2, archive=True), slow)
            assert len(batches.left_out) == left_out


@pytest.mark.parametrize(("problem", "alone"), [
    (psycopg.errors.ProgramLimitExceeded, True), (psycopg.errors.QueryCanceled, True),
    (psycopg.errors.DataCorrupted, True), (psycopg.errors.LockNotAvailable, False),
    (psycopg.errors.ReadOnlySqlTransaction, False), (psycopg.errors.DiskFull, False), (psycopg.OperationalError, False),
])  # fmt: skip
def test_no_saga_is_left_out_for_what_ails_the_server(problem: type[psycopg.Error], alone: bool) -> None:
    """Such as a connection that was lost, a lock, or a replica; a log that is too large is the saga's own."""
    batches = Batches(4)
    assert not batches.shrink(problem())
    assert batches.size == 1 and batches.shrink(problem()) is alone


def test_nothing_is_pruned_where_that_is_off(settings: Any) -> None:
    """PRUNE = False: nobody begins to."""
    settings.SAGAS = {"PRUNE": False}
    pruner = Pruner(DjangoStore("default"))
    pruner.start()
    pruner.stop()
    assert pruner._thread is None


def test_requests_of_pruned_sagas_go(world: World) -> None:
    """A request that was made in the moment of pruning can be applied by nobody; it is removed after a while."""
    sql(ORPHAN)
    pruned()
    assert OutboxRow.objects.count() == 0


def said(*arguments: str) -> str:
    """What a command writes."""
    out = io.StringIO()
    call_command("sagas", *arguments, stdout=out, skip_checks=True)
    return out.getvalue()


def test_prune_forgets_keys_of_the_name_that_is_given(world: World) -> None:
    """And says before how many that are."""
    begin_many(Externals, "ab")
    begin(Trip, "c")
    drain()
    age()
    pruned()
    given = ("prune", "--name", "test.externals", "--keys-older-than", "30")
    assert said(*given, "--dry-run").endswith("2 keys are of sagas that ended more than 30 days ago\n")
    assert sql("select count(*) from sagas_tombstone") == [(3,)]
    assert said(*given).endswith("2 keys were forgotten: they may be used again\n")
    assert sql("select name from sagas_tombstone") == [("test.trip",)]


def test_prune_and_archive_commands(world: World, tmp_path: Path) -> None:
    """Prune now, then move the archive to a file: one JSON object a line; nothing is left in the database."""
    ids = [begin(Trip, f"a-{number}").id for number in range(3)]
    drain()
    age()
    assert said("prune", "--dry-run") == "3 sagas ended more than 90 days ago; nothing was changed\n"
    assert said("prune").startswith("3 sagas that ended more than 90 days ago were pruned; they are in the archive")
    file = tmp_path / "sagas.jsonl"
    assert said("archive", str(file), "--keep").endswith("they are still in the database\n")
    file.unlink()
    assert json.loads(said("archive", str(file), "--json"))["data"] == {"file": str(file), "sagas": 3, "kept": False}
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [UUID(line["id"]) for line in lines] == sorted(ids)
    assert all(line["log"][0]["kind"] == "started" and line["status"] == "completed" for line in lines)
    assert sql("select count(*) from sagas_archive") == [(0,)]


def test_a_batch_is_in_the_file_before_it_leaves_the_database(world: World, tmp_path: Path) -> None:
    """Whoever dies in between has written it, and writes it again: nothing is lost."""
    begin_many(Externals, ["x", "y"])
    drain()
    age()
    pruned()
    file = tmp_path / "sagas.jsonl"
    with DjangoStore("default").connect() as raw, raw.transaction(force_rollback=True):
        assert list(move_archive(raw, file, limit=1)) == [1, 1]
    assert len(file.read_text().splitlines()) == 2
    assert sql("select count(*) from sagas_archive") == [(2,)]
