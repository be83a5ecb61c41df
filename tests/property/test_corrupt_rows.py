"""Rows that somebody has damaged: one saga each, all in the same batches as sound ones.

The sound ones end, whatever the others hold. A damaged one waits, parks or ends; it is never run on what cannot be
read, every page and command that shows it opens, and every call about it answers with an error of ours.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client

from sagas import SagaError, engine
from sagas.states import Status
from tests.cases.conftest import sql
from tests.shop.sagas import Trip
from tests.shop.world import World
from tests.support.odd import told
from tests.support.stories import NO_WAIT, begin_many, drain, expire_leases

pytestmark = pytest.mark.usefixtures("shop")

THIS = "(select id from sagas_saga where key = '{key}')"
SAGA = "update sagas_saga set {what} where key = '{key}'"
ROW = "update sagas_outbox set {what} where saga_id = " + THIS
LOG = "update sagas_log set {what} where seq = 0 and saga_id = " + THIS
ASKED = (
    "insert into sagas_outbox (saga_id, kind, queue, payload, timer_at) values (" + THIS + ", '{kind}', 'default', "
    "'{what}', now())"
)

SAGAS = {
    "status": "status = 'odd'",
    "steps-null": "steps = 'null'",
    "steps-text": "steps = '\"cut\"'",
    "steps-list": "steps = '[1]'",
    "steps-huge": 'steps = \'{"book": {"do": {"attempts": 1e400}}}\'',
    "steps-status": 'steps = \'{"book": {"status": "odd"}}\'',
    "steps-unknown": 'steps = \'{"nope": {"status": "done"}}\'',
    "steps-no-result": 'steps = \'{"book": {"status": "done", "result": 77}}\'',
    "seq": "seq = 2147483647",
    "seq-behind": "seq = -1",
    "name": "name = 'gone.saga'",
    "version": "version = -2147483648",
    "definition": "definition = 'zzz'",
    "headers": "headers = '[1, 2]'",
    "error": "error = repeat('x', 500000)",
    "parent": "parent = gen_random_uuid(), parent_step = 'no'",
    "settling": "status = 'settling'",
    "compensating": "status = 'compensating'",
}
LOGS = {
    "log-null": "data = 'null'",
    "log-list": "data = '[]'",
    "log-empty": "data = '{}'",
    "log-text": "data = '\"cut\"'",
    "log-kind": "kind = 'odd'",
    "log-no-input": "data = data #- '{saga,input}'",
    "log-huge-input": "data = jsonb_set(data, '{saga,input}', '{\"number\": 1e400}')",
    "log-wrong-input": "data = jsonb_set(data, '{saga,input}', '{\"number\": \"7\"}')",
    "log-sealed": 'data = jsonb_set(data, \'{saga,input}\', \'{"$sealed": "nobody", "data": "AAAA"}\')',
    "log-version": "data = jsonb_set(data, '{saga,version}', '\"1\"')",
}
ROWS = {
    "row-step": "step = 'nope'",
    "row-undo": "direction = 'undo'",
    "row-settle": "direction = 'settle'",
    "row-later": "step = 'confirm'",
    "row-progress": "progress = '[1e400]'",
    "row-first": "first_begun_at = '-infinity'",
    "row-timer": "timer_at = 'infinity'",
    "row-payload": "payload = '[1]'",
}
KINDS = ("cancel", "retry", "redo", "mark_done", "skip", "pause", "signal", "late_answer", "children", "undo_completed")
SAID = {"null": "null", "list": "[1]", "odd": '{"step": 7, "reason": [], "seen": "x"}', "step": '{"step": "nope"}'}
UNREADABLE = {"status", "steps-null", "steps-text", "steps-list", "steps-status"}
WAITS = UNREADABLE | {"steps-unknown", "name", "version", "definition", "row-step", "log-sealed"}
PARKS = {
    "log-null",
    "log-list",
    "log-empty",
    "log-text",
    "log-no-input",
    "log-wrong-input",
    "log-gone",
}
SOUND = [f"sound-{number}" for number in range(6)]


def damages() -> dict[str, str]:
    """What is done to the saga of each key."""
    found = {key: SAGA.replace("{what}", what).replace("{key}", key) for key, what in SAGAS.items()}
    found |= {key: LOG.replace("{what}", what).replace("{key}", key) for key, what in LOGS.items()}
    found |= {key: ROW.replace("{what}", what).replace("{key}", key) for key, what in ROWS.items()}
    found["log-gone"] = ("delete from sagas_log where saga_id = " + THIS).replace("{key}", "log-gone")
    found["row-gone"] = ("delete from sagas_outbox where saga_id = " + THIS).replace("{key}", "row-gone")
    for kind in KINDS:
        for name, what in SAID.items():
            key = f"asked-{kind}-{name}"
            found[key] = ASKED.replace("{what}", what).replace("{kind}", kind).replace("{key}", key)
    return found


@pytest.fixture
def unguarded(shop: str) -> Iterator[None]:
    """Without the constraints and the trigger that would refuse some of it."""
    guards = {"sagas_saga": "sagas_saga_status", "sagas_log": "sagas_log_kind"}
    defined = {}
    for table, name in guards.items():
        [(defined[name],)] = sql("select pg_get_constraintdef(oid) from pg_constraint where conname = %s", name)
        sql(f"alter table {table} drop constraint {name}")
    sql("alter table sagas_log disable trigger user")
    yield
    sql("delete from sagas_outbox")
    sql("delete from sagas_log")
    sql("delete from sagas_saga")
    sql("alter table sagas_log enable trigger user")
    for table, name in guards.items():
        sql(f"alter table {table} add constraint {name} {defined[name]}")


@pytest.fixture
def browser(shop: str) -> Iterator[Client]:
    """A superuser's."""
    user = User.objects.create_superuser("root-of-damages")
    client = Client()
    client.force_login(user)
    yield client
    user.delete()


def commanded(*arguments: str) -> str:
    """What a command says, however it ends; anything but an error of ours is raised."""
    out = io.StringIO()
    try:
        call_command("sagas", *arguments, stdout=out, stderr=out)
    except (CommandError, SystemExit) as problem:
        out.write(str(problem))
    return out.getvalue()


@pytest.mark.usefixtures("unguarded")
def test_each_is_held_and_seen_and_harms_nobody(world: World, browser: Client, caplog: Any) -> None:
    """All at once, in the batches of sound ones."""
    world.always("charge", lambda run: str(run.input.number))
    damage = damages()
    begin_many(Trip, [*SOUND[:3], *damage, *SOUND[3:]])
    for statement in damage.values():
        sql(statement.replace("%", "%%"))
    caplog.set_level(logging.CRITICAL)
    for _ in range(4):
        drain(skip=NO_WAIT, check=False)
        expire_leases()
        sql("update sagas_outbox set due_at = now() where due_at < now() + interval '2 minutes'")
    stands = dict(sql("select key, status from sagas_saga"))
    assert {stands[key] for key in SOUND} == {Status.COMPLETED}
    assert {key for key in WAITS if stands[key] not in ("running", "odd")} == set()
    charged = {call.saga for call in world.of("charge")}
    assert not charged & WAITS
    assert {key: stands[key] for key in PARKS if stands[key] == Status.COMPLETED} == {}
    ids = dict(sql("select key, id from sagas_saga"))
    listed = commanded("list", "--limit", "500")
    assert all(str(ids[key]) in listed for key in damage)
    assert listed.count("its row cannot be read") == len(UNREADABLE)
    assert "log-list" in commanded("verify") and "row-gone" in commanded("stuck") + commanded("list", "--stuck")
    for arguments in (["doctor"], ["stats"], ["list", "--json"], ["definitions"], ["locks"]):
        commanded(*arguments)
    for url in ("/admin/sagas/sagarow/", "/admin/sagas/outboxrow/"):
        assert browser.get(url).status_code == 200, url
    for key in (*SAGAS, *LOGS, *ROWS, "log-gone", "asked-children-null", "asked-signal-odd"):
        assert key in commanded("show", str(ids[key])) or key == "name", key
        commanded("show", str(ids[key]), "--json")
        assert browser.get(f"/admin/sagas/sagarow/{ids[key]}/change/").status_code == 200, key
        answers(ids[key], key in UNREADABLE)


def answers(id: Any, unreadable: bool) -> None:
    """Calls about a damaged saga are carried out, or answered with what to do."""
    for ask in (
        lambda: engine.find(None, id=id).allowed_actions,
        lambda: engine.request(None, "cancel", id=id, reason="damaged"),
    ):
        said = told(ask, (SagaError,))
        assert not unreadable or ("its row cannot be read" in said and "sagas rebuild" in said)


@pytest.mark.usefixtures("unguarded")
def test_a_row_that_cannot_be_read_is_made_again_from_its_log(world: World) -> None:
    """`sagas rebuild` mends what was damaged in the saga's row, and the saga goes on where it stood."""
    keys = sorted(UNREADABLE | {"steps-unknown", "steps-huge", "seq-behind"})
    begin_many(Trip, keys)
    for key in keys:
        sql(SAGA.replace("{what}", SAGAS[key]).replace("{key}", key))
    drain(skip=NO_WAIT, check=False)
    for id, *_ in sql("select id from sagas_saga"):
        assert "1 sagas rebuilt" in commanded("rebuild", str(id))
    expire_leases()
    drain()
    assert {row[0] for row in sql("select status from sagas_saga")} == {Status.COMPLETED}
    assert world.count()["charge"] == len(keys)


@pytest.mark.parametrize(
    "damage",
    [
        *(f"update sagas_outbox set {name} = {2**31 - 1}" for name in ("publishes", "deliveries", "failures")),
        f"update sagas_outbox set token = {2**63 - 1}",
        *(f"update sagas_saga set {name} = 'infinity'" for name in ("created_at", "updated_at", "deadline")),
        "update sagas_saga set created_at = '4713-01-01 BC'",
    ],
)
def test_what_would_stop_a_whole_batch_or_page_cannot_be_stored(damage: str) -> None:
    """Counters that cannot be counted up, and times that no client can read: Postgres itself refuses them."""
    begin_many(Trip, ["a"])
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(damage)
