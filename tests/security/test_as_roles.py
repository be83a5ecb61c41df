"""Sagas live their whole lives with everybody connected as no more than their role."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from psycopg.errors import InsufficientPrivilege

from sagas import KeyConflict, Refused
from sagas.doctor import examine
from sagas.embedded import Embedded
from sagas.keys import idempotency_key
from sagas.pace import shared_paces
from sagas.retention import Pruner
from sagas_django.operate import DjangoDesk
from sagas_django.store import DjangoStore
from sagas_outbox.messenger import Messenger
from sagas_outbox.publishers import Routes
from sagas_outbox.relay import Relay
from tests.security.conftest import AsRole
from tests.security.suite import EXCEPT, GROUPS, SLICE, words
from tests.shop.locking import Holds, Wanted
from tests.shop.sagas import Externals, Ordered, Trip
from tests.shop.waiting import Review, Reviewed
from tests.shop.world import World
from tests.support.stories import begin, drain

ROOT = Path(__file__).parents[2]
LONGEST = 1500  # seconds of a group, on a busy machine
CHAOS = "program whose processes have users"


def statuses(url: str) -> dict[str, str]:
    """Status of every saga by its key, as the owner sees it."""
    with psycopg.connect(url) as owner:
        return dict(owner.execute("select key, status from sagas_saga").fetchall())


def refused(statement: str) -> None:
    """The alias "default" may not do this."""
    with pytest.raises(DatabaseError) as found, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert isinstance(found.value.__cause__, InsufficientPrivilege), found.value


def test_callers_start_send_and_ask(guarded: str, as_role: AsRole, world: World) -> None:
    """Who may start sagas needs no right to write a table: starts, repeated starts, conflicts, signals and cancels."""
    with as_role("sagas_application"):
        first = begin(Trip, "trip")
        assert begin(Trip, "trip").id == first.id
        with pytest.raises(KeyConflict):
            begin(Trip, "trip", Ordered(2))
        begin(Reviewed, "early")
        with transaction.atomic():
            Reviewed.review.send(Review(ok=True, note="yes"), key="early", dedupe_id="once")
            Trip.cancel(key="trip", reason="changed my mind")
        assert Trip.get(key="trip").status == "running"
        refused("insert into sagas_log (saga_id, seq, kind) select id, 7, 'completed' from sagas_saga")
        refused("insert into sagas_outbox (saga_id, kind, queue) select id, 'abort', 'default' from sagas_saga")
        refused("update sagas_saga set status = 'completed', finished_at = now()")
        refused("delete from sagas_saga")
    with as_role("sagas_worker"):
        drain()
    assert statuses(guarded) == {"trip": "cancelled", "early": "completed"}


@pytest.mark.parametrize(
    ("role", "needed", "words"),
    [
        ("sagas_application", "sagas_operator", ["list"]),
        ("sagas_application", "sagas_operator", ["stats"]),
        ("sagas_application", "sagas_operator", ["doctor"]),
        ("sagas_application", "sagas_operator", ["show", "test.trip:one"]),
        ("sagas_operator", "sagas_pruner", ["prune", "--older-than", "0"]),
        ("sagas_operator", "sagas_repairer", ["restored", "--reason", "failover"]),
        ("sagas_reader", "sagas_operator", ["list"]),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else each,
)
def test_a_missing_right_is_one_message(
    role: str, needed: str, words: list[str], guarded: str, as_role: AsRole, world: World,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Who may not, and which role to grant; for programs as JSON."""
    with as_role("sagas_application"):
        begin(Trip, "one")
    with as_role(role):
        with pytest.raises(CommandError) as found:
            call_command("sagas", *words, skip_checks=True)
        said = str(found.value)
        assert "permission denied for " in said and needed in said and "\n" not in said, said
        assert role == "sagas_reader" or f"user '{role}' of the database" in said
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            call_command("sagas", *words, "--json", skip_checks=True)
    answer = json.loads(capsys.readouterr().out)
    assert ended.value.code == 1 and not answer["ok"] and answer["error"] == said


def test_a_worker_until_idle_ends_over_a_missing_right(guarded: str, as_role: AsRole) -> None:
    """It does not try for ever what it may not do."""
    with as_role("sagas_application"):
        begin(Trip, "one")
    with as_role("sagas_relay"), pytest.raises(CommandError, match=r"'sagas_relay' .* may not do this .*sagas_worker"):
        call_command("sagas", "worker", "--until-idle", skip_checks=True)


def test_relays_and_workers_say_what_they_may_not(
    guarded: str, as_role: AsRole, caplog: pytest.LogCaptureFixture
) -> None:
    """The server is there: they do not say that it cannot be reached, and name the role."""
    with as_role("sagas_reader"):
        store = DjangoStore("default")
        nowhere: Any = object()
        relay = Relay(store.connect, nowhere, store.settings, paces=shared_paces)
        messenger = Messenger(store.connect, Routes(), store.settings)
        worker = Embedded(store, concurrency=1)
        worker.stop()  # so that it does not wait before it tries again
        assert (relay.run_once(), messenger.run_once(), worker._claim(1).jobs) == (0, 0, [])
        worker.worker.stop()
        for each in (relay, messenger, worker):
            each._link.close()
    told = [each.getMessage() for each in caplog.records]
    assert [each.rpartition(" ")[2] for each in told if "may not (permission denied for " in each] == [
        "sagas_relay", "sagas_relay", "sagas_worker",
    ]  # fmt: skip
    assert "cannot reach" not in caplog.text


def test_a_key_that_was_pruned_is_refused_to_callers_as_ever(guarded: str, as_role: AsRole, world: World) -> None:
    """The one case in which start() takes back a row of its own."""
    with as_role("sagas_application"):
        old = begin(Externals, "old")
    with as_role("sagas_worker"):
        drain()
    with as_role("sagas_pruner"):
        call_command("sagas", "prune", "--older-than", "0", "--name", Externals.plan.name)
    with as_role("sagas_application"):
        assert begin(Externals, "old").id == old.id
    assert statuses(guarded) == {}


def test_workers_run_undo_and_wait(guarded: str, as_role: AsRole, world: World) -> None:
    """Steps, retries, compensations, locks, children and limits of queues need no more than the worker's role has."""
    world.plan("charge", Refused("no"), saga="undone")
    world.plan("charge", OSError("try again"), saga="done")
    with as_role("sagas_application"):
        begin(Trip, "undone")
        begin(Trip, "done")
        begin(Holds, "holds", Wanted())
        begin(Holds, "blocked", Wanted())
    with as_role("sagas_worker"):
        drain()
        refused("update sagas_log set data = '{}'")
        refused("delete from sagas_log")
        refused("set local sagas.pruning = 'on'; delete from sagas_log")
        refused("truncate sagas_log")
        refused("drop table sagas_log")
        refused("delete from sagas_saga")
        refused("delete from sagas_dedupe")
        pruner = Pruner(DjangoStore("default"))
        with pytest.raises(InsufficientPrivilege):  # which it says as a warning, and goes on
            pruner.run_once()
        pruner.stop()
    ended = {"undone": "compensated", "done": "completed", "holds": "running", "blocked": "compensated"}
    assert statuses(guarded) == ended


@pytest.mark.full
def test_operators_look_and_ask(
    guarded: str, as_role: AsRole, world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Every command that looks, and every one that asks, but rebuilding, pruning and moving the archive away."""
    world.always("charge", OSError("down"), saga="parked")
    with as_role("sagas_application"):
        begin(Trip, "parked")
        begin(Reviewed, "waits")
        begin(Holds, "holds", Wanted())
    with as_role("sagas_worker"):
        drain()
    why = ("--reason", "because")
    with as_role("sagas_operator"):
        for words in (
            ["list"], ["list", "--stuck"], ["show", "test.trip:parked"], ["tail", "--since-start", "--count", "1"],
            ["top", "--count", "1"], ["stats"], ["doctor"], ["locks"], ["pauses"], ["definitions"], ["verify"],
            ["replay", "test.trip:parked"], ["queues"], ["schedules"], ["drain", "test.externals", "1"],
            ["retry", "test.trip:parked", *why], ["pause", "test.reviewed:waits", *why],
            ["signal", "test.reviewed:waits", "review", '{"ok": true}', *why],
            ["cancel", "test.holds:holds", *why], ["pause-queue", "default", *why], ["resume-queue", "default"],
            ["pause-definition", "test.trip", *why], ["resume-definition", "test.trip"],
            ["limit-queue", "default", "--concurrency", "3", *why], ["reset-queue", "default"],
        ):  # fmt: skip
            call_command("sagas", *words)
        refused("insert into sagas_log (saga_id, seq, kind) select id, 99, 'completed' from sagas_saga")
        refused("update sagas_saga set status = 'completed'")
        refused("update sagas_outbox set token = token + 1")
        refused("delete from sagas_outbox")
        with pytest.raises(CommandError, match="permission denied"):
            call_command("sagas", "prune", "--older-than", "0")
    capsys.readouterr()
    world.reset()
    with as_role("sagas_worker"):
        drain()
    with as_role("sagas_operator"):
        call_command("sagas", "resume", "test.reviewed:waits", *why)
    with as_role("sagas_worker"):
        drain()
    assert statuses(guarded) == {"parked": "completed", "waits": "completed", "holds": "cancelled"}


def test_an_operator_is_told_what_doctor_cannot_see(guarded: str, as_role: AsRole, world: World) -> None:
    """It may look at the numbers of tables; of other users' sessions it says that it sees nothing."""
    with as_role("sagas_application"):
        begin(Trip, "one")
        begin(Trip, "two")
    with psycopg.connect(guarded) as owner:
        owner.execute("select setval('sagas_outbox_id_seq', 1)")
        owner.commit()
        owner.execute("select 1")  # a transaction that may be long
        with as_role("sagas_operator"):
            found = {each.id: each for each in examine(DjangoDesk("default"))}
        owner.rollback()
        assert "sagas_outbox_id_seq has come to 1" in found["sequence-behind"].message
        assert "pg_read_all_stats" in found["unseen-sessions"].hint


def test_pruning_and_rebuilding_are_roles_of_their_own(
    guarded: str, as_role: AsRole, world: World, tmp_path: Path
) -> None:
    """History leaves by the pruner only, rows come back by the repairer, and neither does the other's work."""
    with as_role("sagas_application"):
        begin(Externals, "old")
        begin(Reviewed, "open")
    with as_role("sagas_worker"):
        drain()
    with psycopg.connect(guarded) as owner:
        owner.execute("delete from sagas_outbox; delete from sagas_saga where key = 'open'")
    with as_role("sagas_repairer"):
        with pytest.raises(CommandError, match="1 problems"):
            call_command("sagas", "verify")
        call_command("sagas", "rebuild")
        call_command("sagas", "verify")
        refused("delete from sagas_log")
    with as_role("sagas_pruner"):
        call_command("sagas", "prune", "--older-than", "0", "--keys-older-than", "0")
        call_command("sagas", "archive", str(tmp_path / "archive"))
        refused("update sagas_log set data = '{}'")
        refused("insert into sagas_log (saga_id, seq, kind) values (gen_random_uuid(), 0, 'started')")
    assert statuses(guarded) == {"open": "running"}


def test_a_database_that_went_back_in_time_is_the_repairers(
    guarded: str, as_role: AsRole, world: World, tmp_path: Path
) -> None:
    """New ids, doubts, and what the other side knows, are written by the repairer; an operator may compare only."""
    with as_role("sagas_application"):
        open_one = begin(Reviewed, "open")
    known = tmp_path / "known.jsonl"
    known.write_text(json.dumps({"key": idempotency_key(open_one.id, "charge"), "id": "ch_7", "result": '"ch_7"'}))
    with as_role("sagas_operator"):
        with pytest.raises(CommandError, match="not as they should be"):
            call_command("sagas", "reconcile", str(known))
        for words in (["restored"], ["reconcile", str(known), "--apply"]):
            with pytest.raises(CommandError, match="permission denied"):
                call_command("sagas", *words, "--reason", "restored from a copy")
    with as_role("sagas_repairer"):
        call_command("sagas", "restored", "--reason", "restored from a copy")
        call_command("sagas", "reconcile", str(known), "--apply", "--reason", "restored from a copy")
    with as_role("sagas_worker"):
        drain(skip=timedelta(minutes=5))
    assert statuses(guarded) == {"open": "running"} and not world.of("charge"), "its answer was known"


def test_readers_see_views_and_no_payload(guarded: str, as_role: AsRole, world: World) -> None:
    """Analysts see where sagas stand; not their inputs and results, and not the tables under the views."""
    with as_role("sagas_application"):
        begin(Trip, "seen")
    with as_role("sagas_reader"):
        with connection.cursor() as cursor:
            cursor.execute("select key, status from sagas_v_status")
            assert cursor.fetchall() == [("seen", "running")]
        for table in ("sagas_saga", "sagas_log", "sagas_outbox", "sagas_dedupe", "sagas_archive"):
            refused(f"select * from {table}")


def run(*patterns: str) -> str:
    """Run tests of other folders under the roles; returns who was there."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.security.as_roles"]
    ran = subprocess.run(
        [*command, *words(*patterns)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=LONGEST,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    return ran.stdout.partition("under the roles: ")[2].partition("\n")[0]


def test_a_slice_of_the_suite_runs_under_the_roles() -> None:
    """Tests that were written without roles in mind pass with each of their callers, workers and operators as one."""
    who = run(*SLICE)
    assert "suite_web" in who and "suite_worker" in who and "suite_operator" in who, who


@pytest.mark.full
@pytest.mark.parametrize("group", GROUPS)
def test_the_suite_runs_under_the_roles(group: str) -> None:
    """So does nearly all of the suite, also with its real relays, Celery and embedded workers as processes."""
    who = run(*GROUPS[group])
    assert CHAOS in who if group == "chaos" else "suite_worker" in who, who


def test_what_is_left_out_is_there() -> None:
    """What does not run under the roles is named, and exists."""
    for name in EXCEPT:
        file, _, test = name.partition("::")
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), name
