"""What is declared wrongly, in settings and in classes: refused where it is written, by an error that names it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from sagas import ConfigurationError, Retry, Saga, SagaError, external_step, sleep, step, wait_for
from sagas.queues import Limits
from sagas.settings import Settings
from sagas_celery.tasks import read_rows, run
from sagas_django import conf
from tests.shop.sagas import Ordered
from tests.support.odd import odd_values, shown, told

NAMES = [field.name for field in dataclasses.fields(Settings)]
NUMBERS = count(1)
PLAIN = [value for value in odd_values() if " " in shown(value)]  # those that can say what they are


def each_odd(call: Callable[[Any], object], name: str, clear: tuple[type[Exception], ...] = (SagaError,)) -> int:
    """Make a call with each odd value; returns how many were taken."""
    taken = 0
    for value in odd_values():
        try:
            said = told(lambda: call(value), clear)  # noqa: B023 - called at once
            assert not said or name in said, f"does not name {name}: {said}"
            taken += not said
        except AssertionError as problem:
            raise AssertionError(f"{name}={shown(value)}: {problem}") from problem
    return taken


@pytest.fixture
def django_says(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Read `SAGAS` as if the project's settings said this."""

    def say(given: Any) -> None:
        monkeypatch.setattr(conf, "settings", SimpleNamespace(SAGAS=given))
        conf.sagas_settings.cache_clear()
        conf.sagas_settings(), conf.publishers(), conf.outbox_tasks(), conf.definitions_file()

    yield say
    conf.sagas_settings.cache_clear()


@pytest.mark.parametrize("name", NAMES)
def test_each_setting(name: str, django_says: Any) -> None:
    """A value that cannot be meant is refused by name, in both worlds; few can be."""
    assert each_odd(lambda value: Settings.of({name: value}, where="settings"), name) < 12
    assert each_odd(lambda value: django_says({name.upper(): value}), name) < 12


@pytest.mark.parametrize("name", conf.APART)
def test_each_setting_that_is_no_number(name: str, django_says: Any) -> None:
    """The three that only Django has."""
    each_odd(lambda value: django_says({name: value}), name)


def test_the_settings_as_a_whole(django_says: Any) -> None:
    """`SAGAS` that is no dict, and names that are no names."""
    each_odd(django_says, "SAGAS")
    each_odd(lambda value: Settings(queues={"mail": value}), "queues['mail']")
    each_odd(lambda value: Settings(queues={"mail": {"rate": value}}), "rate")
    each_odd(lambda value: Limits(concurrency=value), "concurrency")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        *(({name.upper()[:-1] + "_X": 1}, name.upper()) for name in NAMES if len(name) > 5),
        ({"lease": 30}, "LEASE"), ({"Lease": 30}, "LEASE"), ({"OUTBOX_TASK": []}, "OUTBOX_TASKS"),
        ({"DEFINITION_FILE": "x"}, "DEFINITIONS_FILE"), ({"PUBLISHER": {}}, "PUBLISHERS"),
    ],
)  # fmt: skip
def test_a_name_that_is_nearly_right(given: dict[str, Any], meant: str, django_says: Any) -> None:
    """The one that was meant is said, as it has to be written."""
    with pytest.raises(ConfigurationError, match=f"'{meant}'"):
        django_says(given)


@pytest.mark.parametrize("given", [{"ZZZZ": 1}, {7: 1}, {"": 1}, {None: 1}, {("LEASE",): 1}])
def test_a_name_that_is_like_none(given: dict[Any, Any], django_says: Any) -> None:
    """All that there are are listed."""
    with pytest.raises(ConfigurationError, match=r"known are .*HEARTBEAT.*LEASE"):
        django_says(given)


def declare(kind: Any, **options: Any) -> None:
    """A saga with one step declared this way."""

    class Odd(Saga[Ordered], name=f"property.odd{next(NUMBERS)}", version=1):
        @kind(**{"compensate": None, **options})  # type: ignore[untyped-decorator]
        def body(self) -> None: ...

        @step(compensate=None)
        def last(self) -> None: ...

    Odd.fingerprint()


OPTIONS = (
    "retry", "timeout", "queue", "pivot", "compensate", "max_deliveries", "key_ttl", "on_unknown", "settle_after",
    "when", "after", "lock", "priority",
)  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("kind", [step, external_step])
def test_each_option_of_a_step(kind: Any, option: str) -> None:
    """Refused when the class is created; the message names the option."""
    each_odd(lambda value: declare(kind, **{option: value}), option)


@pytest.mark.parametrize("name", ["name", "version", "deadline"])
def test_each_argument_of_a_class(name: str) -> None:
    """The same for what a class says of itself."""
    for value in PLAIN:

        def create(given: Any = value) -> None:
            arguments: dict[str, Any] = {"name": f"property.odd{next(NUMBERS)}", "version": 1, name: given}

            class Odd(Saga[Ordered], **arguments):
                @step(compensate=None)
                def body(self) -> None: ...

        said = told(create, (SagaError,))
        assert not said or name in said, said


@pytest.mark.parametrize("make", [lambda value: sleep(value), lambda value: wait_for(str, timeout=value)])
def test_durations_of_waits(make: Callable[[Any], Any]) -> None:
    """No time that is none, however large."""
    for value in (10**400, float("nan"), float("inf"), -1, "7", timedelta.max, True):
        assert told(lambda: make(value), (SagaError,))  # noqa: B023 - called at once


@pytest.mark.parametrize("name", ["max_attempts", "first", "factor", "longest", "give_up_on"])
def test_each_argument_of_a_retry(name: str) -> None:
    """A `Retry` is plain Python: `TypeError` or `ValueError`, which names what is wrong."""
    each_odd(lambda value: Retry(**{name: value}), "Retry(", (TypeError, ValueError))


def test_messages_that_make_no_sense() -> None:
    """Whatever a message holds: no error, nothing begun."""
    for value in odd_values():
        for rows in (value, [value], [[value, 1]], [[1, value]], [[1, 2, value]]):
            held = read_rows(1, rows)
            assert held is None or all(type(each) is int for row in held for each in row)
        run(v=1, store=[value], rows=[[1, 1]])
        run(v=1, store="default", rows=[[value]])
        run(v="1", store="default", rows=[[1, 1]], extra=value)
