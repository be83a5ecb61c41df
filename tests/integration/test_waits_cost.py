"""What sagas cost while they wait: a row each, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import transaction

from sagas.embedded import Embedded
from sagas_django.store import DjangoStore
from sagas_outbox.claims import Room, Wants
from sagas_outbox.queries import query
from tests.shop.waiting import Review, Reviewed
from tests.shop.world import World
from tests.support.stories import begin, drain, log_of, outbox

PACKAGE = "sagas_outbox"
CLONE = """
with model as (select * from sagas_saga where key = 'model'), new as (
    select n, gen_random_uuid() as id from generate_series(1, %(many)s) n
), sagas as (
    insert into sagas_saga (id, name, version, key, status, seq, input_hash, steps, definition)
    select new.id, name, version, 'clone-' || n, status, seq, input_hash, steps, definition from model, new
), logs as (
    insert into sagas_log (saga_id, seq, kind, step, attempt, token, data)
    select new.id, l.seq, l.kind, l.step, l.attempt, l.token,
        case when l.seq = 0 then jsonb_set(l.data, '{saga,key}', to_jsonb('clone-' || n)) else l.data end
    from sagas_log l join model on model.id = l.saga_id, new
)
insert into sagas_outbox (saga_id, kind, step, direction, queue, due_at, token)
select new.id, o.kind, o.step, o.direction, o.queue, o.due_at + n * interval '1 millisecond', o.token
from sagas_outbox o join model on model.id = o.saga_id, new
"""


@pytest.fixture
def store(shop: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of a worker."""
    with DjangoStore("default").connect() as connection:
        yield connection


def many_waiting(store: psycopg.Connection[Any], many: int) -> None:
    """As many sagas as that, each of them like one that came to its wait in the ordinary way."""
    saga = begin(Reviewed, "model")
    drain()
    assert log_of(saga)[-1] == "waiting review"
    store.execute(CLONE, {"many": many})
    store.execute("vacuum analyze sagas_outbox, sagas_saga, sagas_log")


def explained(store: psycopg.Connection[Any], statement: str, parameters: dict[str, Any]) -> tuple[int, str]:
    """Pages that a statement looks at, and its plan."""
    text = re.sub(r"%\((\w+)\)b", r"%(\1)s", query(PACKAGE, statement))
    with store.transaction(force_rollback=True):
        row = store.execute("explain (analyze, buffers, format json) " + text, parameters).fetchone()
    assert row is not None
    (plan,) = row[0]
    return plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"], json.dumps(plan)


def looks(store: psycopg.Connection[Any]) -> dict[str, dict[str, Any]]:
    """What relays and workers ask for when nothing happens, with the lanes that there are."""
    wanted = Wants(store, [Room("default", 100)], None).parameters | {"begun": True}
    return {
        "queues": {"now": None},
        "due": wanted,
        "claim": wanted | {"holder": "relay:x", "window": 30.0, "doublings": 5},
    }


def _looking_costs_nothing(store: psycopg.Connection[Any], many: int) -> None:
    store.execute("vacuum analyze sagas_outbox")
    few = {name: explained(store, name, given)[0] for name, given in looks(store).items()}
    many_waiting(store, many)
    for name, given in looks(store).items():
        pages, plan = explained(store, name, given)
        assert "Seq Scan" not in plan or '"Relation Name": "sagas_outbox"' not in plan.split("Seq Scan")[1][:200], plan
        assert "sagas_outbox_due" in plan, plan
        assert pages <= few[name] + 24, (name, few[name], pages)  # some descents into an index of three levels


def _one_goes_on(store: psycopg.Connection[Any]) -> None:
    """The signal for one of them finds it, and no other row changes."""
    before = store.execute("select count(*), sum(token), max(deliveries) from sagas_outbox").fetchone()
    assert before is not None and before[2] == 0
    Embedded(DjangoStore("default"), concurrency=1).run(until_idle=True)
    assert store.execute("select count(*), sum(token), max(deliveries) from sagas_outbox").fetchone() == before
    with transaction.atomic():
        Reviewed.review.send(Review(True, "you"), key="clone-77")
    Embedded(DjangoStore("default"), concurrency=1).run(until_idle=True)
    assert Reviewed.get(key="clone-77").status == "completed"
    after = store.execute("select count(*), max(deliveries) from sagas_outbox").fetchone()
    assert after == (before[0] - 1, 0)
    assert store.execute("select count(*) from sagas_outbox where holder is not null").fetchone() == (0,)


def test_twenty_thousand_waiting_sagas_cost_nothing(store: psycopg.Connection[Any], world: World) -> None:
    """Whoever looks for work reads as few pages as without them, by the index, and holds none of them."""
    _looking_costs_nothing(store, 20_000)
    _one_goes_on(store)


@pytest.mark.full
def test_a_hundred_thousand_waiting_sagas_cost_nothing(store: psycopg.Connection[Any], world: World) -> None:
    """The same with five times as many."""
    _looking_costs_nothing(store, 100_000)
    _one_goes_on(store)


def test_a_waiting_saga_is_one_row_that_nobody_holds(store: psycopg.Connection[Any], world: World) -> None:
    """No holder, nothing published, no count of anything: what waits is a due date."""
    saga = begin(Reviewed)
    drain()
    (row,) = outbox(saga)
    assert (row.holder, row.publishes, row.deliveries, row.failures, row.first_begun_at) == (None, 0, 0, 0, None)
