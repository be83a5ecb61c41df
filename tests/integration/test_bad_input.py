"""Bad input is refused before anything is sent, by an error that names the field; the transaction stays usable."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from sagas import CodecError, InvalidInput, KeyConflict, PayloadTooLarge, Refused
from sagas.states import Status
from sagas_django.models import SagaRow
from tests.shop.models import Booking, Order
from tests.shop.sagas import Everything, Kinds, Line, LocalKinds, Ordered, Trip
from tests.shop.world import World
from tests.support.stories import begin, drain, entries, log_of

pytestmark = pytest.mark.usefixtures("shop")

NUL, SURROGATE = "a\x00b", "a\ud800b"
NAIVE = datetime(2026, 1, 1)


@dataclass(frozen=True)
class Stranger:
    """Not what any saga declares."""

    number: int = 0


BAD: list[tuple[str, Any]] = [
    ("input.text", Everything(text=NUL)),
    ("input.text", Everything(text=SURROGATE)),
    ("input.text", Everything(text=7)),  # type: ignore[arg-type]
    ("input.text", Everything(text=b"bytes")),  # type: ignore[arg-type]
    ("input.weight", Everything(weight=float("nan"))),
    ("input.weight", Everything(weight=float("inf"))),
    ("input.when", Everything(when=NAIVE)),
    ("input.lines[1].text", Everything(lines=[Line(), Line(text=NUL)])),
    ("input.lines[0].price", Everything(lines=[Line(price=Decimal("NaN"))])),
    ("input.lines[0]", Everything(lines=[Stranger()])),  # type: ignore[list-item]
    ("input.extra", Everything(extra={NUL: "x"})),
    ("input.extra['a']", Everything(extra={"a": SURROGATE})),
    ("input.extra", Everything(extra={1: "x"})),  # type: ignore[dict-item]
    ("input", Stranger()),
    ("input", None),
    ("input", {"text": "a"}),
    ("input.text", Everything(text=object())),  # type: ignore[arg-type]
    ("input.lines[1].price", Everything(lines=[Line(), Line(price=object())])),  # type: ignore[arg-type]
    ("input.extra['a']", Everything(extra={"a": open})),  # type: ignore[dict-item]
    ("input.extra", Everything(extra={object(): "a"})),  # type: ignore[dict-item]
]


@pytest.mark.parametrize(("path", "value"), BAD, ids=[f"{path}-{n}" for n, (path, _) in enumerate(BAD)])
def test_bad_input_names_the_field(path: str, value: Any) -> None:
    """What could not be read back is refused at `start()`; a later write in the same atomic block commits."""
    with transaction.atomic():
        with CaptureQueriesContext(connection) as statements, pytest.raises(InvalidInput) as raised:
            Kinds.start(value, key="a")
        assert len(statements) == 0
        Order.objects.create(title="still works")
    assert raised.value.path == path
    assert str(raised.value).startswith(f"{path}: ")
    assert (Order.objects.count(), SagaRow.objects.count()) == (1, 0)


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("key", {"key": ""}),
        ("key", {"key": "x" * 256}),
        ("key", {"key": NUL}),
        ("key", {"key": SURROGATE}),
        ("key", {"key": 7}),
        ("headers", {"headers": {"": "x"}}),
        ("headers", {"headers": {"x" * 101: "x"}}),
        ("headers", {"headers": {NUL: "x"}}),
        ("headers", {"headers": {7: "x"}}),
        ("headers['a']", {"headers": {"a": NUL}}),
        ("headers['a']", {"headers": {"a": None}}),
        ("headers['a']", {"headers": {"a": "x" * 4097}}),
        ("headers", {"headers": {f"h{n}": "x" * 1000 for n in range(5)}}),
        ("subject", {"subject": object()}),
    ],
)
def test_bad_arguments_are_named(path: str, arguments: dict[str, Any]) -> None:
    """The same for keys, headers and subjects."""
    with transaction.atomic():
        with pytest.raises(InvalidInput) as raised:
            Trip.start(Ordered(), **{"key": "a", **arguments})
        Order.objects.create(title="still works")
    assert raised.value.path == path
    assert (Order.objects.count(), SagaRow.objects.count()) == (1, 0)


def test_too_large_input(settings: Any) -> None:
    """An input over the limit is refused with its size and what to do instead."""
    settings.SAGAS = {"MAX_PAYLOAD": 1000, "WAKE": False}
    with transaction.atomic():
        with pytest.raises(PayloadTooLarge, match=r"1,0\d\d bytes of JSON, 1,000 are allowed; store it elsewhere"):
            Kinds.start(Everything(text="x" * 1000), key="a")
        assert Kinds.start(Everything(text="x" * 900), key="a").created


def test_the_longest_key_fits() -> None:
    """255 characters, whatever they are: four bytes each, quotes, control characters."""
    for key in ("\U0001f600" * 255, '"' * 255, "\x01" * 255, "ключ 'a';--\n"):
        assert begin(Trip, key).created
        assert not begin(Trip, key).created
        assert Trip.get(key=key).key == key


def test_values_come_back_as_they_were(world: World) -> None:
    """Text with every odd character, exact decimals, instants and large numbers survive jsonb."""
    given = Everything(
        text="\U0001f600 \x01\x1f\\u0000 \\ \" ' \u2028 ünï",
        weight=1e300,
        when=datetime(2026, 10, 25, 2, 30, tzinfo=UTC),
        lines=[Line("a", Decimal("12345678901234567.8900")), Line("b", Decimal("1.10"))],
        extra={"": "", "a'b": '"'},
    )
    seen: list[Everything] = []

    def look(run: Any) -> Everything:
        seen.append(run.input)
        return given

    world.plan("charge", look)
    begin(Kinds, "a", given)
    world.plan("refund", lambda run: seen.append(run.charge.result))
    drain()
    assert seen == [given]
    assert str(seen[0].lines[0].price) == "12345678901234567.8900"


@pytest.mark.parametrize(
    "result",
    [Everything(text=NUL), Everything(weight=float("nan")), Everything(when=NAIVE), Stranger(), None, object()],
)
def test_external_result_that_cannot_be_stored_parks(world: World, result: Any) -> None:
    """The effect is known to have happened: no second charge, no blind undo, a person is asked."""
    world.always("charge", result)
    run = begin(Kinds, "a", Everything())
    drain()
    saga = Kinds.get(key="a")
    assert (saga.status, world.count()) == (Status.PARKED, {"charge": 1})
    assert "happened, but its result cannot be stored: result of step 'charge'" in saga.error
    assert log_of(run) == ["started", "step_failed charge", "parked charge"]
    assert entries(run)[1].data["unknown"] is True


def test_too_large_result_parks(world: World, settings: Any) -> None:
    """The same for a result over the limit."""
    settings.SAGAS = {"MAX_PAYLOAD": 1000, "WAKE": False}
    world.plan("charge", Everything(text="x" * 1000))
    begin(Kinds, "a", Everything())
    drain()
    assert Kinds.get(key="a").status == Status.PARKED
    assert "1,000 are allowed" in Kinds.get(key="a").error


def test_parked_for_its_result_goes_on_when_told(world: World) -> None:
    """After a fix and `retry` the step runs under the same key and its result is taken."""
    world.plan("charge", Everything(text=NUL), Everything(text="fixed"))
    begin(Kinds, "a", Everything())
    drain()
    from sagas import engine

    engine.request("test.kinds", "retry", key="a", reason="deployed a fix")
    drain()
    assert Kinds.get(key="a").status == Status.COMPLETED
    assert len({call.key for call in world.of("charge")}) == 1


@pytest.mark.parametrize("result", [Everything(text=NUL), Stranger(), None])
def test_local_result_that_cannot_be_stored_is_rolled_back(world: World, result: Any) -> None:
    """A local step whose result cannot be stored did not happen, and is not tried again and again."""
    world.always("body", result)
    run = begin(LocalKinds, "a", Everything())
    drain()
    assert (LocalKinds.get(key="a").status, world.count()) == (Status.COMPENSATED, {"body": 1})
    assert Booking.objects.count() == 0
    assert log_of(run)[1:] == ["step_failed body", "step_not_done body", "compensating body", "compensated"]


@pytest.mark.parametrize("message", [NUL, SURROGATE, "x" * 100_000, "\\u0000", ""])
@pytest.mark.parametrize("error", [ValueError, Refused])
def test_any_error_text_can_be_recorded(world: World, message: str, error: type[Exception]) -> None:
    """An exception whose text Postgres cannot store, or that is huge, is recorded all the same."""
    world.always("charge", error(message))
    run = begin(Kinds, "a", Everything())
    drain()
    assert Kinds.get(key="a").status in (Status.PARKED, Status.COMPENSATED)
    assert len(Kinds.get(key="a").error) < 3000
    assert max(len(str(entry.data)) for entry in entries(run)) < 20_000


def test_an_error_without_text(world: World) -> None:
    """An exception that cannot even say what it is does no more harm than another."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    world.always("charge", Mute())
    begin(Kinds, "a", Everything())
    drain()
    assert Kinds.get(key="a").status == Status.PARKED


def test_stored_input_that_no_longer_fits(world: World) -> None:
    """A definition that changed under a running saga parks that saga before its step begins, and no other saga."""
    run, good = begin(Kinds, "a", Everything()), begin(Kinds, "b", Everything())
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("set local sagas.pruning = 'on'")
        cursor.execute("alter table sagas_log disable trigger sagas_log_append_only")
        cursor.execute(
            "update sagas_log set data = jsonb_set(data, '{saga,input}', '{\"text\": 7}') where saga_id = %s", [run.id]
        )
        cursor.execute("alter table sagas_log enable trigger sagas_log_append_only")
    world.always("charge", lambda run: run.input)
    drain()
    assert Kinds.get(id=good.id).status == Status.COMPLETED
    assert Kinds.get(id=run.id).status == Status.PARKED
    assert log_of(run)[1:] == ["parked charge"]
    assert "input.text: what is stored does not fit" in Kinds.get(id=run.id).error


def test_conflict_and_bad_input_are_told_apart() -> None:
    """Bad input is an error of its own also when the key exists."""
    begin(Kinds, "a", Everything())
    with transaction.atomic():
        with pytest.raises(InvalidInput):
            Kinds.start(Everything(text=NUL), key="a")
        with pytest.raises(KeyConflict):
            Kinds.start(Everything(text="b"), key="a")
    assert issubclass(InvalidInput, CodecError)
