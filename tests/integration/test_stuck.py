"""When a saga is stuck: one rule, in Python and in SQL, and what operators are shown of it."""

from __future__ import annotations

import io
import json
import random
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from sagas import Refused, pauses, ports
from sagas.measure import find_stuck
from sagas.pauses import Scope
from sagas.registry import registry
from sagas.stuck import REMEDIES, OpenSaga, Stuck, Work, limit, stuck
from sagas_django.models import OutboxRow, SagaRow
from sagas_django.operate import rows
from sagas_django.store import DjangoStore
from tests.shop.families import Purchase
from tests.shop.sagas import Charge, Externals, Ordered, Queues, Trip
from tests.shop.waiting import Reviewed
from tests.shop.world import World
from tests.support.stories import begin, drain

pytestmark = pytest.mark.usefixtures("shop")

AGES = (0, 1, 200, 299, 301, 400, 700, 1000, 1500, 3000, 5000, 9000)  # seconds, around the limits


def sql(statement: str, *given: object) -> None:
    """One statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement, given or None)


def by_sql(**more: Any) -> dict[str, str]:
    """What `stuck.sql` finds: the reason of each saga, by its key."""
    found = find_stuck(
        lambda name, given: rows("default", name, given | more), DjangoStore("default").settings, limit=1000
    )
    return {each.key: each.reason for each in found}


def now() -> float:
    """The database clock."""
    with connection.cursor() as cursor:
        cursor.execute("select extract(epoch from clock_timestamp())::float8")
        found: float = cursor.fetchone()[0]
        return found


def behind(row: OutboxRow) -> bool:
    """Whether a row is not the first in the line of its ordering key."""
    line = OutboxRow.objects.filter(queue=row.queue, ordering_key=row.ordering_key, kind="step")
    return row.ordering_key is not None and row.pk != line.order_by("place", "id").first().pk


def full() -> set[str]:
    """The queues that are at their limit."""
    with connection.cursor() as cursor:
        cursor.execute("select sagas_full_v1(clock_timestamp())")
        return {name for (name,) in cursor.fetchall()}


def at_its_limit(queue: str, row: OutboxRow) -> None:
    """A queue with one place, which a row has that a worker holds."""
    sql("insert into sagas_queue (name, concurrency, actor) values (%s, 1, 'test')", queue)
    sql(
        "update sagas_outbox set holder = 'worker:x', due_at = clock_timestamp() + interval '1 hour' where id = %s",
        row.pk,
    )
    sql("insert into sagas_slot (outbox_id, queue, token, begun) values (%s, %s, %s, true)", row.pk, queue, row.token)


def by_rule(moment: float) -> dict[str, str]:
    """What the rule says of each saga, by its key."""
    settings = DjangoStore("default").settings
    held = rows("default", "pauses", {})
    found = {}
    for saga in SagaRow.objects.all():
        plan = registry.get(saga.name, saga.version).plan
        waits = {
            step: told.get("until") or told.get("blocked")
            for step, told in saga.steps.items()
            if told.get("status") == "waiting" or told.get("blocked") is not None
        } | {
            step: None
            for step in OutboxRow.objects.filter(saga_id=saga.id, direction="undo").values_list("step", flat=True)
            if saga.steps.get(step, {}).get("recalled")
        }
        facts = OpenSaga(
            updated_at=saga.updated_at.timestamp(), finished=saga.finished_at is not None,
            parked=saga.parked_from is not None, waits=waits,
            paused=saga.paused or any(each.kind == "definition" and each.name == saga.name for each in held),
        )  # fmt: skip
        work = [
            Work(
                behind=behind(row) or (row.holder is None and row.queue in full()), step=row.step,
                due_at=row.due_at.timestamp(),
                first_begun_at=row.first_begun_at and row.first_begun_at.timestamp(),
                paused=any(each.kind == "queue" and each.name == row.queue for each in held),
            )
            for row in OutboxRow.objects.filter(saga_id=saga.id)
        ]  # fmt: skip
        reason = stuck(
            facts, work, now=moment, after=settings.stuck_after, other=100.0,
            limits={step.name: limit(step, settings) for step in plan.steps},
        )  # fmt: skip
        if reason:
            found[saga.key] = reason.value
    return found


@pytest.mark.parametrize("seed", range(3))
def test_rule_and_sql_agree(seed: int) -> None:
    """Whatever sagas and rows there are, the statement finds what the rule names, for the same reasons."""
    chance = random.Random(seed)
    for number in range(60):
        key = f"saga-{number}"
        saga = begin(chance.choice([Trip, Charge, Queues, Reviewed]), key)
        age = chance.choice(AGES)
        sql("update sagas_saga set updated_at = clock_timestamp() - make_interval(secs => %s), paused = %s"
            " where id = %s", age, chance.random() < 0.1, saga.id)  # fmt: skip
        sql("update sagas_outbox set due_at = clock_timestamp() + make_interval(secs => %s), holder = %s,"
            " first_begun_at = case when %s then clock_timestamp() - make_interval(secs => %s) end where saga_id = %s",
            chance.choice([*(-each for each in AGES), *[50] * 12]), chance.choice([None, "relay:x", "worker:x"]),
            chance.random() < 0.3, chance.choice(AGES), saga.id)  # fmt: skip
        if chance.random() < 0.3:
            sql("update sagas_outbox set ordering_key = %s, place = %s where saga_id = %s",
                chance.choice("abcd"), chance.randrange(9), saga.id)  # fmt: skip
        if chance.random() < 0.2:
            sql("update sagas_outbox set queue = 'elsewhere' where saga_id = %s", saga.id)
        if chance.random() < 0.1:
            sql("delete from sagas_outbox where saga_id = %s", saga.id)
        if chance.random() < 0.4:
            until = chance.choice([None, now() + 50, now() - 50, now() - 5000])
            told = {"status": "waiting"} if until is None else {"status": "waiting", "until": until}
            if chance.random() < 0.3 and until is not None:
                told = {"blocked": until}
            elif until is None and chance.random() < 0.5:
                told = {"recalled": True}
                sql("update sagas_outbox set direction = %s where saga_id = %s", chance.choice(["do", "undo"]), saga.id)
            sql("update sagas_saga s set steps = jsonb_build_object(o.step, %s::jsonb) from sagas_outbox o"
                " where o.saga_id = s.id and s.id = %s", json.dumps(told), saga.id)  # fmt: skip
    if seed == 2:
        begin(Queues, "at-work")
        at_its_limit("elsewhere", OutboxRow.objects.latest("id"))
        assert full() == {"elsewhere"}
    if seed % 2:
        with ports.store("default").connect() as raw:
            pauses.pause(raw, Scope.DEFINITION, Charge.saga_name, version=0, actor="", reason="test")
            pauses.pause(raw, Scope.QUEUE, "elsewhere", version=0, actor="", reason="test")
    moment = now()
    found = by_sql(now=datetime.fromtimestamp(moment, UTC))
    assert found == by_rule(moment)
    assert len(set(found.values())) == 3, "the worlds are too alike to show anything"


def test_sound_sagas_are_not_stuck(world: World) -> None:
    """What is new, done, waiting, parked or paused is not."""
    begin(Trip, "new")
    begin(Reviewed, "waits")
    drain()
    begin(Trip, "fresh")
    assert by_sql() == {}
    sql("update sagas_saga set updated_at = clock_timestamp() - interval '30 days'")
    assert set(by_sql()) <= {"fresh"}


def test_whose_children_are_being_undone_is_not_stuck(world: World) -> None:
    """The child has parked on its way back, and waits for a person: its parent has nothing to do until then."""
    world.plan("pack", Refused("box is broken"))
    world.always("give_back", OSError("no reply"))
    begin(Purchase, "parent")
    drain()
    sql("update sagas_saga set updated_at = clock_timestamp() - interval '30 days'")
    assert list(SagaRow.objects.filter(finished_at=None).order_by("id").values_list("status", flat=True)) == [
        "compensating", "parked",
    ]  # fmt: skip
    assert by_sql() == {}


def test_a_saga_that_nobody_takes_is_stuck() -> None:
    """Work that has been due for longer than `stuck_after`, said by `list --stuck`, with what to do."""
    begin(Trip, "late")
    sql("update sagas_outbox set due_at = clock_timestamp() - interval '400 seconds'")
    assert by_sql() == {"late": Stuck.OVERDUE}
    out = io.StringIO()
    call_command("sagas", "list", "--stuck", stdout=out)
    head, line, remedy = out.getvalue().splitlines()
    assert head.split() == ["why", "since", "id", "name", "key"]
    assert re.match(r"overdue  \d+ min \d+ s ago", line) and line.endswith("test.trip  late"), line
    assert remedy == f"overdue: {REMEDIES[Stuck.OVERDUE]}"
    out = io.StringIO()
    call_command("sagas", "list", "--stuck", "--json", stdout=out)
    answer = json.loads(out.getvalue())
    assert answer["ok"] and [each["reason"] for each in answer["data"]] == ["overdue"]


def test_a_saga_without_work_is_stuck_at_once() -> None:
    """Nothing will ever happen to it, so there is nothing to wait for."""
    begin(Reviewed, "waits")
    begin(Trip, "sound")
    drain()
    lost = begin(Trip, "lost")
    sql("delete from sagas_outbox")
    assert by_sql() == {"lost": Stuck.NO_WORK, "waits": Stuck.NO_WORK}
    for saga, waits in (("test.trip:lost", 1), ("test.reviewed:waits", 2), ("test.trip:sound", 0)):
        out = io.StringIO()
        call_command("sagas", "show", saga, stdout=out)
        assert out.getvalue().count("waits     ") == waits
        assert out.getvalue().count("has lost its work: it has no row in the outbox") == min(waits, 1)
        assert out.getvalue().count("manage.py sagas rebuild ") == min(waits, 1)
    out = io.StringIO()
    call_command("sagas", "show", str(lost.id), "--json", stdout=out)
    (advice,) = json.loads(out.getvalue())["data"]["next"]
    assert advice["command"] == f"manage.py sagas rebuild {lost.id}"


def test_work_that_is_begun_over_and_over_is_stuck() -> None:
    """A worker that cannot use it puts it off each time, so it is never overdue; yet nothing comes of it."""
    saga = begin(Trip, "quiet")
    settings = DjangoStore("default").settings
    longest = limit(Trip.plan.by_name["book"], settings) + settings.stuck_after
    sql("update sagas_saga set updated_at = clock_timestamp() - make_interval(secs => %s)", longest - 200)
    sql("update sagas_outbox set due_at = clock_timestamp() + interval '1 hour'")
    assert by_sql() == {}
    sql("update sagas_saga set updated_at = updated_at - interval '400 seconds'")
    assert by_sql() == {"quiet": Stuck.QUIET}
    sql("update sagas_saga set paused = true where id = %s", saga.id)
    assert by_sql() == {}


def test_of_a_line_only_the_first_is_stuck() -> None:
    """Those behind it wait for it, and say so: who looks at one of them learns which saga is to be seen to."""
    ids = {}
    with transaction.atomic():
        for key in ("first", "second", "third"):
            ids[key] = Externals.start(Ordered(), key=key, ordering_key="customer-7").id
    sql("update sagas_outbox set due_at = clock_timestamp() - interval '400 seconds'")
    sql("update sagas_saga set updated_at = clock_timestamp() - interval '3 hours'")
    assert by_sql() == {"first": Stuck.OVERDUE}
    first = f"one waits in the line of customer-7, which test.externals {ids['first']} (key first) is first in"
    for key in ("second", "third"):
        out = io.StringIO()
        call_command("sagas", "show", f"test.externals:{key}", stdout=out)
        assert f"waits     {first}" in out.getvalue()
        assert f"next      manage.py sagas show {ids['first']}\n" in out.getvalue()
        assert "a line goes on when its first one does." in out.getvalue()
    out = io.StringIO()
    call_command("sagas", "show", "test.externals:first", stdout=out)
    assert "and nobody takes it" in out.getvalue() and "manage.py sagas doctor" in out.getvalue()
    out = io.StringIO()
    call_command("sagas", "list", stdout=out)
    assert out.getvalue().count(first) == 2 and out.getvalue().count("and nobody takes it") == 1


def test_work_that_waits_for_a_place_in_a_queue_is_not_stuck() -> None:
    """It waits for whoever is at work there, and says so; whose worker is gone leaves its place."""
    at_work = begin(Trip, "at-work")
    begin(Trip, "waits")
    at_its_limit("default", OutboxRow.objects.get(saga_id=at_work.id))
    sql("update sagas_outbox set due_at = clock_timestamp() - interval '400 seconds' where holder is null")
    assert by_sql() == {}
    out = io.StringIO()
    call_command("sagas", "show", "test.trip:waits", stdout=out)
    assert "waits     book waits for a place in queue default, which is at its limit" in out.getvalue()
    sql("update sagas_outbox set due_at = clock_timestamp() - interval '1 second' where holder is not null")
    assert by_sql() == {"waits": Stuck.OVERDUE}


def test_work_that_no_worker_begins_says_so() -> None:
    """A relay holds it, and publishes it again and again: it is neither due nor overdue."""
    begin(Queues, "unserved")
    sql("update sagas_outbox set holder = 'relay:x', publishes = 3, due_at = clock_timestamp() + interval '80 seconds'")
    out = io.StringIO()
    call_command("sagas", "show", "test.queues:unserved", stdout=out)
    assert "waits     left in queue left is published again and again, and no worker begins it" in out.getvalue()
    assert "next      manage.py sagas doctor" in out.getvalue()
    sql("update sagas_outbox set publishes = 2")
    out = io.StringIO()
    call_command("sagas", "show", "test.queues:unserved", stdout=out)
    assert "again and again" not in out.getvalue()


def test_a_rate_that_is_used_up_explains_a_wait() -> None:
    """For as long as what the period allows has been begun; afterwards nobody takes the work."""
    begin(Trip, "waits")
    sql("update sagas_outbox set due_at = clock_timestamp() - interval '400 seconds'")
    sql("insert into sagas_queue (name, rate, period, spent, spent_at, actor) values ('default', 2, 3600, '{0,0,0,2}',"
        " floor(extract(epoch from clock_timestamp()) * 20 / 3600), 'test')")  # fmt: skip
    assert by_sql() == {}
    sql("update sagas_queue set spent_at = spent_at - 30")
    assert by_sql() == {"waits": Stuck.OVERDUE}
