"""Incidents with values that cannot be stored, read back, or should never have been run."""

from __future__ import annotations

import ast
import base64
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client

from sagas import COMPENSATE, UNKNOWN, InvalidInput, PayloadTooLarge, Retry, Saga, Unknown, external_step
from sagas.states import Status
from sagas.store import rows
from sagas_celery.publisher import message
from sagas_celery.tasks import read_rows
from sagas_django.models import SagaRow
from sagas_django.store import DjangoStore
from sagas_outbox.claims import Held
from sagas_outbox.relay import Relay
from tests.shop.models import Order
from tests.shop.sagas import Everything, Externals, Kinds, Local, Ordered
from tests.shop.world import World, world
from tests.support.attentive import attentive
from tests.support.stories import NO_WAIT, begin, begin_many, drain, entries, log_of, second_connection
from tests.support.workers import run_together

pytestmark = pytest.mark.usefixtures("shop")
ROOT = Path(__file__).parents[2]
UNSTORABLE = [Everything(text="a\x00b"), Everything(text="\ud800")]


@dataclass(frozen=True)
class Numbers:
    """Of every size."""

    account: int = 0
    weight: float = 0.0


@dataclass(frozen=True)
class Nested:
    """May nest without end."""

    inner: Nested | None = None


class Counts(Saga[Numbers], name="case.counts", version=1):
    """Gives back what it was given."""

    @external_step(retry=Retry(max_attempts=2, first=10))
    def count(self) -> Numbers:
        return world.act("count", self) and self.input  # type: ignore[no-any-return]

    @count.compensate
    def uncount(self, numbers: Numbers) -> None:
        world.act("uncount", self, numbers)


class Deep(Saga[Nested], name="case.deep", version=1):
    """Takes a tree."""

    @external_step(compensate=None)
    def body(self) -> None: ...


class Tolerant(Saga[Ordered], name="case.tolerant", version=1):
    """Its compensation needs no result."""

    @external_step(retry=Retry(max_attempts=2, first=10), on_unknown=COMPENSATE)
    def charge(self) -> Everything:
        return world.act("charge", self)  # type: ignore[no-any-return]

    @charge.compensate(retry=Retry(max_attempts=3, first=10))
    def refund(self, charge: Everything | Unknown) -> None:
        world.act("refund", self, charge)


class Listed:
    """A broker that takes whatever it is given."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[Held]]] = []

    def publish(self, queue: str, rows: Any) -> None:
        """Take a message."""
        self.sent.append((queue, list(rows)))

    def reset(self) -> None:
        """Nothing to drop."""


@pytest.fixture
def admin() -> Iterator[Client]:
    """A superuser's browser."""
    user = User.objects.create_superuser("root")
    client = Client()
    client.force_login(user)
    yield client
    user.delete()


def relay_of(publisher: Listed) -> Relay:
    """A relay that publishes to a list."""
    store = DjangoStore("default")
    return attentive(Relay(store.connect, publisher, store.settings, paces=rows.paces))


@pytest.mark.parametrize("payload", ['{"reason": 1e5000}', '{"reason": [1]}', "[]", '{"other": 1e5000}'])
def test_ob05_an_unreadable_payload_delays_only_itself(payload: str, world: World, admin: Client) -> None:
    """A request whose payload nobody can read is applied for what it is, without its reason; rows before and after it
    in the same batch are run and recorded, the relay publishes all of them, and the admin still lists it."""
    begin_many(Externals, ["before"])
    odd = begin(Local, "odd")
    with connection.cursor() as cursor:
        cursor.execute("update sagas_outbox set due_at = now() + '1 day' where saga_id = %s", [odd.id])
        cursor.execute(
            "insert into sagas_outbox (saga_id, kind, queue, payload) values (%s, 'cancel', 'default', %s)",
            [odd.id, payload],
        )
    begin_many(Externals, ["after"])
    broker = Listed()
    relay = relay_of(broker)
    relay.run_once()
    relay._link.close()
    assert len([row for _, rows in broker.sent for row in rows]) == 3
    with connection.cursor() as cursor:
        cursor.execute("update sagas_outbox set holder = null, due_at = now() where due_at < now() + '1 hour'")
    for url in ("/admin/sagas/outboxrow/", "/admin/sagas/sagarow/", f"/admin/sagas/sagarow/{odd.id}/change/"):
        assert admin.get(url).status_code == 200, url
    run_together(goes_on=True)
    assert {Externals.get(key=key).status for key in ("before", "after")} == {Status.COMPLETED}
    assert log_of(odd) == ["started", "cancel_requested"]
    readable = payload.startswith('{"other"')  # what is not known is not read
    assert ("cannot be read" in entries(odd)[1].data.get("reason", "")) is not readable


@pytest.mark.parametrize("result", UNSTORABLE, ids=["NUL", "surrogate"])
def test_en02_a_result_that_jsonb_refuses_ends_in_one_charge(result: Everything, world: World) -> None:
    """The charge happened and what came back cannot be stored: not charged again, not undone without its result; the
    saga waits for a person."""
    world.always("charge", result)
    with transaction.atomic():
        run = Kinds.start(Everything(), key="a")
    drain()
    saga = Kinds.get(key="a")
    assert (saga.status, world.names) == (Status.PARKED, ["charge"])
    assert "cannot be stored" in saga.error
    assert log_of(run) == ["started", "step_failed charge", "parked charge"]


@pytest.mark.parametrize("number", [2**64 + 1, 10**20, -(2**63) - 1, 10**3999])
def test_en07_large_integers_stay_exact(number: int, world: World) -> None:
    """Integers beyond 64 bits come out of jsonb as they went in, through input and result."""
    with transaction.atomic():
        Counts.start(Numbers(account=number), key="a")
    world.plan("count", 1)
    world.plan("uncount", None)
    drain()
    assert Counts.get(key="a").status == Status.COMPLETED
    with second_connection() as other:
        stored = other.execute(
            "select data #>> '{result,account}' from sagas_log where kind = 'step_done'"
        ).fetchone()  # fmt: skip
    assert stored == (str(number),)


def test_en07_what_would_not_come_back_is_refused(world: World) -> None:
    """An integer of 5,000 digits is refused by the name of its field; a float that SQL made infinite fails its own
    saga, not silently as another number."""
    with transaction.atomic():
        with pytest.raises(InvalidInput) as refused:
            Counts.start(Numbers(account=10**5000), key="long")
        assert refused.value.path == "input.account"
        run = Counts.start(Numbers(weight=1.5), key="a")
    with second_connection() as other, other.transaction():
        other.execute("set local session_replication_role = replica")  # past the trigger that guards history
        other.execute(
            "update sagas_log set data = jsonb_set(data, '{saga,input,weight}', '1e400') where saga_id = %s", [run.id]
        )
    world.always("count", 1)
    drain()
    saga = Counts.get(key="a")
    assert (saga.status, "input.weight" in str([entry.data for entry in entries(run)])) == (Status.PARKED, True)


def test_en09_executed_with_an_unknown_output_is_remembered(world: World) -> None:
    """A charge whose output cannot be stored is part of what is undone, also when the undo fails at first. It is never
    repeated under another key."""
    world.always("charge", UNSTORABLE[0])
    begin(Tolerant)
    drain()
    assert Tolerant.get(key="a").status == Status.PARKED
    world.plan("refund", ConnectionError("the undo fails too"))
    with transaction.atomic():
        Tolerant.cancel(key="a", reason="give it back")
    drain()
    assert world.names == ["charge", "refund", "refund"]
    assert {call.argument for call in world.of("refund")} == {UNKNOWN}
    assert len({call.key for call in world.of("refund")}) == 1
    drain(skip=NO_WAIT)
    assert Tolerant.get(key="a").status == Status.SETTLING  # asked about once more before it counts as undone


def test_en10_a_payload_over_the_limit_is_no_transient_error(world: World, settings: Any) -> None:
    """Too large or too deep is refused at `start()`; as a result it parks at once, with the size in the text."""
    settings.SAGAS = {"WAKE": False, "MAX_PAYLOAD": 10_000}
    deep: Nested | None = None
    for _ in range(2000):
        deep = Nested(deep)
    with transaction.atomic():
        with pytest.raises(PayloadTooLarge, match="10,000 are allowed"):
            Kinds.start(Everything(text="x" * 50_000), key="big")
        with pytest.raises(InvalidInput, match=r"nested|bytes"):
            Deep.start(Nested(deep), key="deep")
        Order.objects.create(title="the transaction is still good")
        Kinds.start(Everything(), key="a")
    world.always("charge", Everything(text="x" * 50_000))
    drain()
    saga = Kinds.get(key="a")
    assert (saga.status, world.names) == (Status.PARKED, ["charge"])
    assert "bytes of JSON" in saga.error


def test_en10_messages_do_not_grow_with_payloads() -> None:
    """A message names rows; five passes over a saga with a large input publish it once, in a few bytes."""
    with transaction.atomic():
        Kinds.start(Everything(text="x" * 900_000), key="a")
    broker = Listed()
    relay = relay_of(broker)
    for _ in range(5):
        relay.run_once()
    relay._link.close()
    assert len(broker.sent) == 1
    assert len(str(message("default", broker.sent[0][1]))) < 100


def test_en13_a_wake_up_carries_nothing(settings: Any) -> None:
    """However much a transaction starts, the hint after it is one of fixed size, so it can never be refused."""
    settings.SAGAS = {}
    with second_connection() as listener:
        listener.execute("listen sagas_wake")
        with transaction.atomic():
            for number in range(1000):
                Externals.start(Ordered(number), key=f"{number:0255d}")
        heard = next(listener.notifies(timeout=10, stop_after=1))
        more = list(listener.notifies(timeout=0))
    assert heard.payload == ""
    assert len(more) < 10
    assert SagaRow.objects.count() == 1000


class Gadget:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.mkdir, (self.path,)


def test_en14_no_stored_byte_is_ever_executed(tmp_path: Path, world: World) -> None:
    """A pickle in a payload, or in a message, is text that does not fit; nothing in the engine could run it."""
    trap = tmp_path / "executed"
    pickled = base64.b64encode(pickle.dumps(Gadget(trap))).decode()
    with transaction.atomic():
        run = Counts.start(Numbers(), key="a")
    with second_connection() as other, other.transaction():
        other.execute("set local session_replication_role = replica")
        other.execute(
            "update sagas_log set data = jsonb_set(data, '{saga,input}', to_jsonb(%s::text)) where saga_id = %s",
            [pickled, run.id],
        )
    world.always("count", 1)
    drain()
    assert Counts.get(key="a").status == Status.PARKED
    assert read_rows(1, pickled) is None
    assert read_rows(1, [[pickled, 0]]) is None
    assert not trap.exists()


DANGEROUS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "jsonpickle"}


def test_en14_the_engine_knows_no_codec_but_json() -> None:
    """No module of the engine imports what can turn data into code, or calls `eval`, and the task pins JSON."""
    found = []
    for folder in ("sagas", "outbox", "integrations"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                names = [each.name for each in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
                if DANGEROUS & {name.split(".")[0] for name in names} or called in ("eval", "exec"):
                    found.append(f"{file}:{node.lineno}")  # type: ignore[attr-defined]
    assert found == []
    from sagas_celery.tasks import run

    assert run.serializer == "json"
