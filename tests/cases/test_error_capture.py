"""Incidents in which the error could not be stored, and what happened was lost with it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from sagas import DefinitionError, InvalidInput, Refused, Saga, external_step, step
from sagas.failure import MAX_MESSAGE, MAX_TRACEBACK
from sagas.states import Status
from sagas_django.models import SagaRow
from tests.shop.models import Order
from tests.shop.sagas import Ordered, Trip
from tests.shop.world import World
from tests.support.stories import begin, drain, entries

pytestmark = pytest.mark.usefixtures("shop")


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class TwoArguments(Exception):
    """Cannot be made from its `args`."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")


class Reduces(Exception):
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("not to be pickled")


def local_class() -> Exception:
    """An exception of a class that no other process can import."""

    class Hidden(Exception):
        """Defined in a function."""

    return Hidden("hidden")


def fails_with(error: BaseException, world: World) -> Any:
    """Run a saga whose last step always raises this; returns its last failure as it was stored."""
    world.always("confirm", error)
    run = begin(Trip)
    drain()
    assert Trip.get(key="a").status == Status.COMPENSATED
    assert world.names[-2:] == ["refund", "unbook"]
    [*_, last] = [entry.data["error"] for entry in entries(run) if "error" in entry.data]
    return last


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad \x00 byte"), "bad \\0 byte"),
        (ValueError("bad \ud800 surrogate"), "bad ? surrogate"),
        (ValueError("x" * 5_000_000), "xxx"),
        (Mute(), "cannot be had"),
    ],
    ids=["NUL", "surrogate", "5 MB", "mute"],
)
def test_en01_any_error_can_be_recorded(error: Exception, text: str, world: World) -> None:
    """Text that Postgres refuses, that is huge, or that cannot be had: the failure is recorded, cleaned and bounded,
    under the error's own type, and the saga turns back."""
    stored = fails_with(error, world)
    assert text in stored["message"]
    assert stored["type"].endswith(type(error).__name__)
    assert len(stored["message"]) <= MAX_MESSAGE
    assert len(stored["traceback"]) <= MAX_TRACEBACK


@pytest.mark.parametrize(
    "error",
    [
        TwoArguments(7, "seven"),
        ValueError(threading.Lock()),
        Reduces("reduces"),
        ExceptionGroup("several", [ValueError("one"), Mute()]),
        local_class(),
    ],
    ids=["two arguments", "lock", "reduce", "group", "local class"],
)
def test_en08_errors_are_kept_as_text(error: Exception, world: World) -> None:
    """Type name, message and traceback, whatever class it is: nothing is pickled, so whoever reads it imports
    nothing. Whether it is permanent is decided by the worker that still has the exception."""
    stored = fails_with(error, world)
    assert type(error).__qualname__ in stored["type"]
    assert stored["message"] == str(error)
    assert all(isinstance(value, str) for value in stored.values())
    assert Trip.get(key="a").error


ASCII, ACCENTS, FACES = "abcdefgh", "äöü€", "😀😁😂🤣"
TEXTS = [(FACES, 1), (ASCII, 255), (FACES, 255), (ACCENTS, 256), (FACES, 2_000), (ASCII, 13_000), (FACES, 13_000)]


@pytest.mark.parametrize(("letters", "length"), TEXTS)
def test_en11_long_texts_are_refused_or_cut(length: int, letters: str, world: World) -> None:
    """Keys are checked at `start()` and an error's text is cut between characters; nothing is left to a limit that
    Postgres finds later, when the step has been run."""
    chance = random.Random(length)
    text = "".join(chance.choices(letters, k=length))
    if length <= 255:
        with transaction.atomic():
            run = Trip.start(Ordered(), key=text)
        assert SagaRow.objects.get(id=run.id).key == text
    else:
        with transaction.atomic():
            with pytest.raises(InvalidInput, match="hash longer ones"):
                Trip.start(Ordered(), key=text)
            run = Trip.start(Ordered(), key="short")
    world.plan("confirm", Refused(text))
    drain()
    saga = Trip.get(id=run.id)
    assert saga.status == Status.COMPENSATED
    assert saga.error.removesuffix("…").removeprefix("refused: ") == text[: len(saga.error) - 9 - (length > 2000)]


@pytest.mark.parametrize("length", [501, 13_000])
def test_en11_a_long_primary_key_is_refused_in_time(length: int) -> None:
    """A subject whose primary key our index could not hold is refused by name, and the transaction stays usable."""
    chance = random.Random(length)
    key = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))
    with transaction.atomic():
        with pytest.raises(InvalidInput) as refused:
            Trip.start(Ordered(), key="a", subject=Order(pk=key))  # type: ignore[misc]
        assert refused.value.path == "subject"
        Order.objects.create(title="still usable")


def too_long_name() -> None:
    class Long(Saga[Ordered], name="x" * 101, version=1):
        @step(compensate=None)
        def body(self) -> None: ...


def too_long_queue() -> None:
    class Long(Saga[Ordered], name="case.long_queue", version=1):
        @external_step(compensate=None, queue="x" * 101)
        def body(self) -> None: ...


@pytest.mark.parametrize("define", [too_long_name, too_long_queue])
def test_en11_names_are_checked_where_they_are_declared(define: Callable[[], None]) -> None:
    """A saga or queue whose name would not fit is an error when the class is created."""
    with pytest.raises(DefinitionError, match="1 to 100"):
        define()
