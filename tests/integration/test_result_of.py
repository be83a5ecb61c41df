"""What a step has returned, read from outside of its saga."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from cryptography.fernet import Fernet
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from sagas import NoResult, PayloadLocked, Refused, Saga, SagaNotFound, step
from sagas.registry import registry
from tests.shop.families import Letters
from tests.shop.payloads import Order, Receipt, Review, Vaulted
from tests.shop.sagas import Charge, Ordered, Pivoted, Trip
from tests.shop.world import World
from tests.support.codecs import FernetCodec
from tests.support.stories import begin, drain

pytestmark = pytest.mark.usefixtures("shop")


def test_of_one_saga(world: World) -> None:
    """By key or by id, also what was null, and what was undone since; `steps` of the run has only where it is kept."""
    world.plan("confirm", Refused("no"), saga="undone")
    run, undone = begin(Trip, "a"), begin(Trip, "undone")
    begin(Pivoted, "p")
    drain()
    assert Trip.confirm.result_of(key="a") == Trip.confirm.result_of(id=run.id) == "confirmed"
    assert Trip.charge.result_of(key="undone").startswith("charge-")
    assert Trip.get(id=undone.id).status == "compensated"
    assert Pivoted.invoice.result_of(key="p") is None
    steps = Trip.get(key="a").steps
    assert steps is not None and isinstance(steps["charge"].result, int)


def test_where_there_is_none(world: World) -> None:
    """It says how the step and the saga stand; a saga of another class is no saga with this step."""
    run = begin(Trip, "a")
    with pytest.raises(NoResult, match=r"of saga test.trip \S+ \(key 'a'\) has no result: it is 'pending', "):
        Trip.charge.result_of(key="a")
    with pytest.raises(SagaNotFound, match=r"no saga test.trip with key 'nobody'"):
        Trip.charge.result_of(key="nobody")
    with pytest.raises(SagaNotFound, match=r"is a test.trip, not one with Charge.charge"):
        Charge.charge.result_of(id=run.id)
    assert Trip.charge.results_of([run.id, UUID(int=0)]) == {} == Trip.charge.results_of([])


def test_of_many_with_one_statement(world: World) -> None:
    """However many they are; what has none, or is another saga, is not among them."""
    world.plan("charge", Refused("no"), saga="refused")
    runs = {key: begin(Trip, key) for key in ("a", "b", "refused")}
    other = begin(Charge, "other")
    drain()
    with CaptureQueriesContext(connection) as statements:
        found = Trip.charge.results_of(run.id for run in [*runs.values(), other])
    assert len(statements) == 1
    assert found == {runs[key].id: Trip.charge.result_of(key=key) for key in ("a", "b")}


def test_of_the_declared_type_sealed_or_not(world: World, settings: Any) -> None:
    """Also with sensitive fields, of signals, and of items; who lacks the key is told so."""
    for codec in (None, FernetCodec(Fernet.generate_key())):
        settings.SAGAS = {"WAKE": False, "PAYLOAD_CODEC": codec}
        key = "sealed" if codec else "plain"
        begin(Vaulted, key, Order())
        drain()
        with transaction.atomic():
            Vaulted.review.send(Review(ok=True, note="hush"), key=key)
        drain()
        receipt = Vaulted.charge.result_of(key=key)
        assert isinstance(receipt, Receipt) and receipt.code is not None and receipt.code.endswith("-charged")
        assert Vaulted.review.result_of(key=key) == Review(ok=True, note="hush")
    settings.SAGAS = {"WAKE": False}
    with pytest.raises(PayloadLocked, match="result of step 'charge'"):
        Vaulted.charge.result_of(key="sealed")
    begin(Letters, "l", Ordered(2))
    drain()
    assert [each.partition("-")[0] for each in Letters.post.result_of(key="l")] == ["send", "send"]


def test_a_step_that_sagas_share(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is declared in a base; the sagas of all that have it are meant by their ids."""
    monkeypatch.setattr(registry, "_sagas", dict(registry._sagas))

    class Base(Saga[Ordered]):
        @step(compensate=None)
        def shared(self) -> int:
            return self.input.number

    class One(Base, name="test.results.one", version=1): ...

    class Two(Base, name="test.results.two", version=1): ...

    runs = [begin(One, "a", Ordered(1)), begin(Two, "a", Ordered(2))]
    drain()
    assert One.shared.results_of(run.id for run in runs) == {runs[0].id: 1, runs[1].id: 2}
    assert Two.shared.result_of(id=runs[1].id) == 2


@pytest.mark.django_db(transaction=True)
def test_awaited(world: World) -> None:
    """The twins give the same."""
    run = begin(Trip, "a")
    drain()

    async def read() -> tuple[str, dict[UUID, str]]:
        return await Trip.confirm.aresult_of(key="a"), await Trip.confirm.aresults_of([run.id])

    assert asyncio.run(read()) == ("confirmed", {run.id: "confirmed"})
