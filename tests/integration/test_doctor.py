"""`sagas doctor`: each thing that can be wrong is found, and a sound installation is left in peace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from celery import Celery
from django.core.management import CommandError, call_command
from django.db import connection

from sagas import doctor, pauses
from sagas.doctor import Level, Problem, examine
from sagas.pauses import Scope
from sagas.schedules import firing, table
from sagas.settings import Settings
from sagas_celery.doctor import examine as examine_celery
from sagas_django.operate import DjangoDesk
from sagas_django.store import DjangoStore
from sagas_outbox.claims import Held
from sagas_outbox.relay import FORGOTTEN, Relay
from tests.integration.conftest import database_alias
from tests.settings import database_from_url
from tests.shop.sagas import Charge, Externals, Trip
from tests.shop.world import World
from tests.support.schedules import Raises, declared
from tests.support.stories import begin, drain

pytestmark = pytest.mark.usefixtures("shop")


def found() -> dict[str, Problem]:
    """What it finds, by id."""
    return {each.id: each for each in examine(DjangoDesk("default"))}


def sql(statement: str) -> None:
    """One statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement)


@contextmanager
def changed(statement: str, back: str) -> Iterator[None]:
    """The database with something changed."""
    sql(statement)
    try:
        yield
    finally:
        sql(back)


def mended(problems: dict[str, Problem]) -> set[str]:
    """Which problems there are, besides those of the test server itself."""
    return set(problems) - {"fsync", "split-aliases", "sagas.W005", "sagas.W010"}


def test_a_sound_installation(world: World) -> None:
    """Nothing is found where nothing is wrong, also with sagas that have ended."""
    begin(Trip, "a")
    drain()
    assert mended(found()) == set()


@pytest.mark.parametrize(("prepared", "level"), [(True, Level.WARNING), (False, Level.ERROR)])
def test_a_role_with_another_isolation(shop: str, settings: Any, prepared: bool, level: Level) -> None:
    """Workers change it for their own sessions, but not for those that a pooler hands around."""
    settings.SAGAS = {"PREPARED": prepared}
    with changed(
        f"alter role current_user in database {connection.settings_dict['NAME']}"
        " set default_transaction_isolation to 'repeatable read'",
        f"alter role current_user in database {connection.settings_dict['NAME']} reset default_transaction_isolation",
    ):
        problems = found()
    assert problems["isolation"].level is level
    assert "'repeatable read'" in problems["isolation"].message


def test_relays_that_are_not_there() -> None:
    """Work that is due and that nobody has ever taken."""
    begin(Externals, "a")
    sql("update sagas_outbox set due_at = clock_timestamp() - interval '40 seconds'")
    problem = found()["dead-relays"]
    assert problem.level is Level.ERROR and "queue default" in problem.message
    sql("insert into sagas_process (holder, host, pid, seen_at)"
        " values ('relay:x', 'h', 1, clock_timestamp() - interval '1 hour')")  # fmt: skip
    assert "1 of the relays went without a word" in found()["missing-processes"].message
    sql("delete from sagas_process")


def unclaimed() -> None:
    """Work that has been due for long, and that nobody has ever taken."""
    begin(Externals, "a")
    sql("update sagas_outbox set due_at = clock_timestamp() - interval '400 seconds'")
    assert "dead-relays" in found()


@pytest.mark.parametrize(
    "explained",
    [
        "insert into sagas_pause (kind, name, actor, reason) values ('queue', 'default', 'ann', 'test')",
        "insert into sagas_queue (name, rate, period, spent, spent_at, actor) values ('default', 1, 3600, '{1}',"
        " floor(extract(epoch from clock_timestamp()) * 20 / 3600), 'ann')",
        "insert into sagas_outbox (saga_id, kind, step, direction, queue, due_at, holder)"
        " select saga_id, kind, 'other', direction, queue, clock_timestamp() + interval '1 hour', 'relay:x'"
        " from sagas_outbox",
    ],
    ids=["paused", "at its limit", "the window is full"],
)
def test_work_that_waits_for_a_reason_blames_no_relay(explained: str) -> None:
    """A pause, a limit that is reached, and more work than goes into the broker at a time."""
    unclaimed()
    sql(explained)
    assert "dead-relays" not in found()


def test_workers_that_are_not_there() -> None:
    """Work that relays publish again and again, in a queue that no worker serves."""
    begin(Externals, "a")
    sql("update sagas_outbox set holder = 'relay:x', publishes = 3, due_at = clock_timestamp() + interval '80 seconds'")
    problem = found()["dead-workers"]
    assert problem.level is Level.ERROR and "queue default" in problem.message and "-Q default" in problem.hint
    sql("update sagas_outbox set publishes = 2")
    assert "dead-workers" not in found()


class Broker:
    """Takes messages, or does not."""

    def __init__(self) -> None:
        self.down = True

    def publish(self, queue: str, rows: Sequence[Held]) -> None:
        if self.down:
            raise ConnectionRefusedError("nobody listens")

    def reset(self) -> None:
        """Nothing to drop."""


def test_a_relay_whose_broker_is_down() -> None:
    """It is there, and claims, so that nothing is due for long: it says itself that it gets nothing done."""
    begin(Externals, "a")
    broker, store = Broker(), DjangoStore("default")
    relay = Relay(store.connect, broker, Settings(), paces=lambda _: {})  # type: ignore[arg-type]
    for _ in range(2):
        assert relay.run_once() == 0
        relay._presence._due_at = 0.0
        relay._presence.note_if_due(relay._link)
        sql("update sagas_outbox set due_at = clock_timestamp()")
    problem = found()["failing-processes"]
    assert problem.level is Level.ERROR
    assert problem.message.startswith("1 of 1 relays are there and have got nothing done for")
    assert "the broker takes no messages: ConnectionRefusedError('nobody listens')" in problem.message
    broker.down = False
    assert relay.run_once() == 1
    relay._presence._due_at = 0.0
    relay._presence.note_if_due(relay._link)
    assert "failing-processes" not in found()
    broker.down = True
    sql("update sagas_outbox set due_at = clock_timestamp()")
    assert relay.run_once() == 0 and relay._presence.trouble
    sql("delete from sagas_outbox")  # another relay has published it
    assert relay.run_once() == 0 and relay._presence.trouble
    relay._failed_at -= FORGOTTEN
    assert relay.run_once() == 0 and not relay._presence.trouble
    relay._presence.leave(relay._link)
    relay._link.close()


def test_messages_that_were_given_up() -> None:
    """Each holds up its key, and nobody is told otherwise."""
    sql("insert into sagas_message (message_id, destination, state, payload, finished_at)"
        " values (gen_random_uuid(), 'shop.pay', 'dead', '{}', clock_timestamp())")  # fmt: skip
    try:
        assert found()["dead-messages"].message.startswith("1 messages to shop.pay")
    finally:
        sql("delete from sagas_message")


def test_claims_that_ended() -> None:
    """Workers that died, and nobody took over."""
    begin(Externals, "a")
    sql("update sagas_outbox set holder = 'worker:gone', due_at = clock_timestamp() - interval '1 second'")
    assert "1 rows have ended" in found()["expired-claims"].message


def test_a_long_transaction(monkeypatch: pytest.MonkeyPatch, shop: str) -> None:
    """Whatever holds vacuum back is named with its process."""
    monkeypatch.setattr(doctor, "LONG", 0.0)
    with psycopg.connect(shop, application_name="report") as other:
        other.execute("select 1")
        problem = found()["long-transaction"]
    assert "report" in problem.message and "vacuum" in problem.message


def test_an_old_snapshot(monkeypatch: pytest.MonkeyPatch, shop: str) -> None:
    """A transaction that is few seconds, and many transactions, old."""
    monkeypatch.setattr(doctor, "OLD", 0)
    with psycopg.connect(shop) as other:
        other.execute("set transaction isolation level repeatable read")
        other.execute("select count(*) from sagas_saga")
        sql("insert into sagas_pause (kind, name) values ('queue', 'x')")
        assert "transactions old" in found()["old-xmin"].message


@pytest.mark.parametrize(
    ("statement", "back", "id"),
    [
        ("alter index sagas_outbox_due rename to x", "alter index x rename to sagas_outbox_due", "missing-index"),
        ("alter view sagas_v_queues rename to x", "alter view x rename to sagas_v_queues", "missing-view"),
        ("alter function sagas_get_v1 rename to x", "alter function x rename to sagas_get_v1", "missing-function"),
        ("alter table sagas_log disable trigger sagas_log_append_only",
         "alter table sagas_log enable trigger sagas_log_append_only", "unfit-trigger"),
        ("update pg_index set indisvalid = false where indexrelid = 'sagas_outbox_due'::regclass",
         "update pg_index set indisvalid = true where indexrelid = 'sagas_outbox_due'::regclass", "unfit-index"),
        ("alter table sagas_outbox set (autovacuum_enabled = false)",
         "alter table sagas_outbox reset (autovacuum_enabled)", "autovacuum"),
    ],
)  # fmt: skip
def test_what_is_missing_or_switched_off(statement: str, back: str, id: str) -> None:
    """Indexes, functions, views, the trigger that keeps history, vacuum."""
    with changed(statement, back):
        assert id in mended(found())
    assert mended(found()) == set()


def test_versions_that_nobody_has() -> None:
    """Open sagas whose class is gone from this process, or whose steps were changed."""
    begin(Trip, "a")
    begin(Charge, "b")
    sql("update sagas_saga set version = 9 where key = 'a'")
    sql("update sagas_saga set definition = 'other' where key = 'b'")
    problems = found()
    assert "test.trip version 9" in problems["unknown-version"].message
    assert "1 open sagas of test.charge version 1" in problems["changed-version"].message


def test_sagas_that_need_somebody(world: World) -> None:
    """Stuck and parked ones, and what is paused."""
    world.always("charge", OSError("no route"))
    begin(Charge, "parked")
    drain()
    begin(Trip, "lost")
    sql("delete from sagas_outbox")
    with DjangoStore("default").connect() as raw:
        pauses.pause(raw, Scope.QUEUE, "elsewhere", version=0, actor="ann", reason="the bank is down")
    problems = found()
    assert "test.trip:lost (no_work)" in problems["stuck"].message and problems["stuck"].level is Level.ERROR
    assert "1 sagas are parked" in problems["parked"].message
    assert "by ann: the bank is down" in problems["paused"].message and problems["paused"].level is Level.NOTE


def test_schedules_that_start_nothing() -> None:
    """Nobody looks after them; or somebody does, again and again, and their input cannot be made."""
    fails = Raises()
    with closing(DjangoStore("default").connect()) as wire, declared(input=fails) as schedule:
        table.declare(wire, schedule)
        assert mended(found()) == set()
        sql("update sagas_schedule set next_at = now() - interval '1 hour', look_at = now() - interval '1 hour'")
        problem = found()["late-schedules"]
        assert problem.level is Level.ERROR and "test.nightly should have started its saga 3" in problem.message
        fails.error = LookupError("no such table")
        firing.fire_due(wire, Settings(wake=False), [schedule])
        problem = found()["failing-schedules"]
        assert problem.level is Level.ERROR and "LookupError: no such table" in problem.message
        assert "late-schedules" not in found()
        table.pause(wire, schedule.name, reason="no shop is open")
        assert mended(found()) == set()


def test_clocks_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """This host and the server."""
    import time
    from types import SimpleNamespace

    monkeypatch.setattr(doctor, "time", SimpleNamespace(time=lambda: time.time() + 90))
    assert re.search(r"\d\d s ahead of the server's", found()["clock-skew"].message)


def test_one_database_under_two_aliases(shop: str) -> None:
    """A saga and a business change on two connections look like one transaction, and are two."""
    with database_alias("twin", database_from_url(shop)):
        assert "'default' and 'twin' are the same database" in found()["split-aliases"].message


def test_a_celery_app_that_would_defeat_the_outbox() -> None:
    """Eager mode, refused content, a Redis that may hang, and more taken ahead than can be begun in time."""
    app = Celery("a", broker="redis://127.0.0.1:1", set_as_current=False)
    app.conf.update(task_always_eager=True, accept_content=["pickle"], worker_prefetch_multiplier=4)
    paces = {("shop.order", "charge", "do"): 3.0, ("shop.order", "book", "do"): 0.001}
    problems = {each.id: each for each in examine_celery(app, Settings(), paces)}
    assert {"sagas.E010", "sagas.E012", "sagas.W010", "prefetch"} <= set(problems)
    assert "charge of shop.order takes 3.0 s" in problems["prefetch"].message
    assert problems["sagas.E010"].level is Level.ERROR
    app.conf.worker_prefetch_multiplier = 1
    assert "prefetch" not in {each.id for each in examine_celery(app, Settings(), paces)}


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Worst first; it fails if sagas cannot work, and only then; JSON for programs."""
    call_command("sagas", "doctor")
    begin(Trip, "lost")
    sql("delete from sagas_outbox")
    capsys.readouterr()
    with pytest.raises(CommandError, match="1 of these keep sagas from working"):
        call_command("sagas", "doctor")
    assert capsys.readouterr().out.startswith("error    stuck: 1 sagas are stuck: test.trip:lost (no_work)")
    with pytest.raises(SystemExit) as ended:
        call_command("sagas", "doctor", "--json")
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert ended.value.code == 1 and not answer["ok"] and answer["data"][0]["id"] == "stuck"
