"""What callers may give wrongly: each argument of each public call, with values that nobody means to give.

Each is taken, or refused by an error of ours that names the argument; then nothing is written, and the transaction
that it was called in can be used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sagas import Saga, SagaError, engine, wait_for
from sagas_outbox import publish
from sagas_outbox.errors import OutboxError
from sagas_outbox.publishing import NewMessage, publish_many
from tests.shop.sagas import Everything, Kinds, Ordered, Trip
from tests.support.odd import everything, odd_values, shown, told
from tests.support.stories import begin

pytestmark = pytest.mark.usefixtures("shop")

CLEAR = (SagaError, OutboxError)
Give = Callable[[Any], object]


class Waits(Saga[Ordered], name="property.waits", version=1):
    """Waits for a text."""

    go = wait_for(str)


def starts(**given: Any) -> object:
    """`start()` with these arguments in place of usual ones."""
    return Trip.start(**{"input": Ordered(), "key": "new", **given})


def asks(**given: Any) -> object:
    """`request()` in the same way."""
    usual = {"name": "test.trip", "kind": "mark_done", "key": "there", "reason": "r", "step": "book", "result": 1}
    return engine.request(**{**usual, **given})


def sends(**given: Any) -> object:
    """`send()` in the same way."""
    return Waits.go.send(**{"value": "v", **({} if "id" in given else {"key": "waits"}), **given})


def starts_or_sends(**given: Any) -> object:
    """`start_or_send()` in the same way."""
    return Waits.go.start_or_send(**{"input": Ordered(), "value": "v", "key": "new", **given})


def publishes(**given: Any) -> object:
    """`publish()` in the same way."""
    return publish(**{"destination": "shop.mail", "payload": 1, **given})


def finds(**given: Any) -> object:
    """`get()` in the same way."""
    return Trip.get(**({"key": "there"} if "using" in given else {}), **given)


def cancels(**given: Any) -> object:
    """`cancel()` in the same way."""
    return Trip.cancel(**{"reason": "r", **({} if "id" in given else {"key": "there"}), **given})


def starts_kinds(**given: Any) -> object:
    """`start()` with one wrong field."""
    return Kinds.start(Everything(**given), key="new")


START = ("key", "subject", "using", "on_existing", "headers", "deadline", "priority", "ordering_key", "input")
ENTRIES: list[tuple[Callable[..., object], str]] = [
    *((starts, each) for each in START),
    *((starts_kinds, each) for each in ("text", "weight", "when", "lines", "extra")),
    *((asks, each) for each in ("name", "kind", "reason", "actor", "step", "result", "seen", "using")),
    *((sends, each) for each in ("value", "key", "id", "dedupe_id", "missing", "actor", "reason", "using")),
    *((starts_or_sends, each) for each in ("input", "value", "key", "dedupe_id")),
    *(
        (publishes, each)
        for each in ("destination", "payload", "ordering_key", "due_at", "queue", "headers", "options")
    ),
    *((finds, each) for each in ("key", "id", "using")),
    *((cancels, each) for each in ("key", "id", "reason", "using")),
]
CALLED = {"value": "send()", "number": "input.number"}  # how messages call it, where not by its name
NONE_MEANS_LEFT_OUT = {
    (finds, "key"),
    (finds, "id"),
    (cancels, "key"),
    (cancels, "id"),
    (sends, "key"),
    (sends, "id"),
} | {(starts_or_sends, "key")}


def refused_or_taken(call: Give, value: Any, name: str) -> str:
    """Make a call in a savepoint, and undo what it wrote where it took the value; returns what it said."""
    mark = transaction.savepoint()
    said = told(lambda: call(value), CLEAR)
    if said:
        called = CALLED.get(name, name)
        assert called in said or "no saga" in said, f"does not name {called}: {said}"
    else:
        transaction.savepoint_rollback(mark)
    return said


@pytest.mark.parametrize(("entry", "name"), ENTRIES, ids=[f"{entry.__name__}-{name}" for entry, name in ENTRIES])
def test_each_argument(entry: Callable[..., object], name: str) -> None:
    """Whatever is given for one argument: taken, or refused by name, with nothing written and the transaction whole."""
    begin(Trip, "there")
    begin(Waits, "waits")
    before = everything()
    with transaction.atomic():
        for value in odd_values():
            if value is None and (entry, name) in NONE_MEANS_LEFT_OUT:
                continue
            try:
                refused_or_taken(lambda given: entry(**{name: given}), value, name)
            except AssertionError as problem:
                raise AssertionError(f"{entry.__name__}({name}={shown(value)}): {problem}") from problem
        assert everything() == before


@pytest.mark.parametrize("field", ["message_id", "destination", "headers"])
def test_each_field_of_many_messages(field: str) -> None:
    """One bad message among several: none is published, and the field is named."""
    before = everything()
    with transaction.atomic():
        for value in odd_values():
            bad = NewMessage(**({"destination": "shop.mail"} | {field: value}))
            refused_or_taken(lambda given: publish_many([NewMessage(destination="a"), given]), bad, field)
        with pytest.raises(OutboxError, match="messages: 'text' is no NewMessage"):
            publish_many(["text"])  # type: ignore[list-item]
        assert everything() == before


def several_odd_arguments(places: dict[str, int]) -> None:
    """Several arguments of `start()` at once."""
    values = odd_values()
    chosen = {name: values[number % len(values)] for name, number in places.items()}
    with transaction.atomic():
        before = everything()
        mark = transaction.savepoint()
        if told(lambda: starts(**chosen), CLEAR):
            assert everything() == before
        transaction.savepoint_rollback(mark)


PLACES = st.dictionaries(st.sampled_from(START), st.integers(0, 100), min_size=2)
BESIDE_A_DATABASE = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=BESIDE_A_DATABASE)
@given(PLACES)
def test_several_at_once(places: dict[str, int]) -> None:
    """However many are wrong, one error of ours, and nothing written."""
    several_odd_arguments(places)


@pytest.mark.full
@settings(max_examples=3000, deadline=None, suppress_health_check=BESIDE_A_DATABASE)
@given(PLACES)
def test_several_at_once_often(places: dict[str, int]) -> None:
    """The same, thousands of times."""
    several_odd_arguments(places)


TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=300)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=BESIDE_A_DATABASE)
@given(TEXTS, TEXTS)
def test_any_text_comes_back_as_it_was_or_is_refused(key: str, text: str) -> None:
    """Keys and inputs of any characters: what is taken is found under exactly that key, with exactly that text."""
    with transaction.atomic():
        mark = transaction.savepoint()
        said = told(lambda: Kinds.start(Everything(text=text), key=key), CLEAR)
        if not said:
            assert Kinds.get(key=key).key == key
            assert not Kinds.start(Everything(text=text), key=key).created
        transaction.savepoint_rollback(mark)
