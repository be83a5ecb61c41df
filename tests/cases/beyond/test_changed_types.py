"""A release renames a field of an input or a result, and forgets the new version: open sagas are parked."""

from __future__ import annotations

import io
from dataclasses import dataclass
from secrets import token_hex

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction
from django.test import Client

from sagas import Retry, Saga, child_saga, engine, external_step, step, wait_for
from sagas.engine import SagaRun
from tests.shop.world import World, world
from tests.support.stories import begin, drain, log_of

pytestmark = pytest.mark.usefixtures("shop")

ONCE = Retry(max_attempts=1)


@dataclass(frozen=True)
class Order:
    """The input."""

    amount: int
    note: str = ""


@dataclass(frozen=True)
class Renamed:
    """The input, as the careless release has it."""

    cents: int
    note: str = ""


@dataclass(frozen=True)
class Charged:
    """A result."""

    id: str


@dataclass(frozen=True)
class ChargedOtherwise:
    """The result, as the careless release has it."""

    reference: str


class Pays(Saga[Order], name="beyond.pays", version=1):
    """Reads its input in every step, each of which has one attempt only."""

    @step(retry=ONCE)
    def reserve(self) -> None:
        world.notes.append(f"reserve {self.input.amount}")

    @reserve.compensate(retry=ONCE)
    def release(self, reserved: None) -> None:
        world.notes.append(f"release {self.input.amount}")

    @external_step(retry=ONCE, compensate=None)
    def charge(self) -> Charged:
        world.notes.append(f"charge {self.input.amount}")
        return Charged("c1")

    approved = wait_for(bool)

    @external_step(pivot=True, retry=ONCE)
    def ship(self) -> None:
        world.notes.append(f"ship {self.charge.result.id}")


class Calls(Saga[Order], name="beyond.calls", version=1):
    """Its only step is external."""

    @external_step(pivot=True, retry=ONCE)
    def call(self) -> None:
        world.notes.append(f"call {self.input.amount}")


class Delegates(Saga[Order], name="beyond.delegates", version=1):
    """What its child is given is told from its input."""

    child = child_saga(Calls, input=lambda run: Order(run.input.amount), compensate=None, retry=ONCE)


CURRENCIES = {"EUR", "DEM"}


@dataclass(frozen=True)
class Price:
    """An input that looks itself up."""

    currency: str

    def __post_init__(self) -> None:
        {each: each for each in CURRENCIES}[self.currency]  # what is not there is a KeyError


class Sells(Saga[Price], name="beyond.sells", version=1):
    """Reads such an input."""

    @external_step(pivot=True, retry=ONCE)
    def sell(self) -> None:
        world.notes.append(f"sell for {self.input.currency}")


def said(*words: str) -> str:
    """What a command writes."""
    out = io.StringIO()
    call_command("sagas", *words, stdout=out, skip_checks=True)
    return out.getvalue()


def page(url: str) -> str:
    """What the admin shows."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client.get(url).content.decode()


def retry(saga: SagaRun) -> None:
    """A person has deployed code that can read it."""
    with transaction.atomic():
        engine.request(None, "retry", id=saga.id, reason="the code is back")
    drain()


def test_an_input_that_no_longer_fits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No body runs, nothing is undone, no attempt is counted; people are told why; the former code goes on."""
    saga = begin(Pays, "order", Order(7))
    with monkeypatch.context() as careless:
        careless.setattr(Pays, "input_type", Renamed)
        drain()
        assert (world.notes, log_of(saga)) == ([], ["started", "parked reserve"])
        assert "what is stored does not fit" in said("show", str(saga.id))
        assert "cents" in said("show", str(saga.id), "--json")
        assert "cents" in page(f"/admin/sagas/sagarow/{saga.id}/change/")
    retry(saga)
    assert world.notes == ["reserve 7", "charge 7"]


@pytest.mark.parametrize("back", [False, True], ids=["forward", "back"])
def test_a_result_that_no_longer_fits(world: World, monkeypatch: pytest.MonkeyPatch, back: bool) -> None:
    """Likewise in the middle of a saga, also where it turns back."""
    saga = begin(Pays, "order", Order(7))
    drain()
    with transaction.atomic():
        if back:
            Pays.cancel(key="order", reason="changed my mind")
        else:
            Pays.approved.send(True, key="order")
    step = Pays.charge
    with monkeypatch.context() as careless:
        careless.setattr(step, "compiled", (step.plan, ChargedOtherwise))
        drain()
        assert world.notes == ["reserve 7", "charge 7"]
        assert Pays.get(key="order").status == "parked" and "reference" in Pays.get(key="order").error
    retry(saga)
    ended = Pays.get(key="order").status
    assert (ended, world.notes[2:]) == (("cancelled", ["release 7"]) if back else ("completed", ["ship c1"]))


@pytest.mark.parametrize("kind", [Pays, Calls, Delegates], ids=["local", "external", "child"])
def test_a_large_input_that_no_longer_fits(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: type[Saga[Order]]
) -> None:
    """It is read by the body only. One that is local, or that says what a child is given, has done nothing; what an
    external one did before it read it, nobody knows. None is undone."""
    saga = begin(kind, "order", Order(7, note=token_hex(50_000)))  # which cannot be compressed
    with monkeypatch.context() as careless:
        careless.setattr(kind, "input_type", Renamed)
        drain()
        assert (world.notes, kind.get(key="order").status) == ([], "parked")
        assert ("step_failed call" in log_of(saga)) is (kind is Calls)
    retry(saga)
    assert world.notes[:1] == {Pays: ["reserve 7"], Calls: ["call 7"], Delegates: ["call 7"]}[kind]


def test_an_input_whose_class_raises_whatever_it_likes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is parked as well, and those that were begun together with it go on."""
    _, odd, _ = (begin(Sells, key, Price(currency)) for key, currency in {"a": "EUR", "b": "DEM", "c": "EUR"}.items())
    with monkeypatch.context() as careless:
        careless.setattr(f"{__name__}.CURRENCIES", {"EUR"})
        drain()
        assert world.notes == ["sell for EUR"] * 2
    retry(odd)
    assert world.notes[2:] == ["sell for DEM"]
