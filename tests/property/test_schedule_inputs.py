"""What is declared wrongly of a schedule, and what is asked of one that is none: an error that names it, no row."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from sagas import SagaError, Schedule
from sagas.schedules import firing, table
from sagas.schedules.declaration import schedules
from sagas.settings import Settings
from sagas_django.store import DjangoStore
from tests.shop.sagas import Ordered, Trip
from tests.support.odd import everything, odd_values, shown, told
from tests.support.schedules import NAME, declared

CRONS = (
    "", " ", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *",
    "5-1 * * * *", "1,, * * * *", "a b c d e", "@daily", "@reboot", "0 0 30 2 *", "0 0 31 2,4,6 *", "* * * * MON#6",
    "* * * * * *",
    "9" * 5000 + " * * * *", "*/" + "9" * 5000 + " * * * *", "-1 * * * *", "1-2-3 * * * *", "\x00 * * * *",
    "\ud800 * * * *", "\u0663 * * * *", ",".join(["1"] * 50_000) + ",x * * * *",
)  # fmt: skip
ZONES = (
    "", " ", ".", "..", "../UTC", "/etc/passwd", "Europe", "Europe/Berlinn", "europe\x00", "\ud800", "x" * 70_000,
    "posixrules", "tzdata.zi", "C:\\zone",
)  # fmt: skip
ARGUMENTS = ("saga", "cron", "every", "offset", "timezone", "catch_up", "overlap", "most", "name", "store")


@pytest.fixture(autouse=True)
def known() -> Any:
    """Those that this test makes are forgotten."""
    before = set(map(id, schedules.all()))
    yield
    for each in [each for each in schedules.all() if id(each) not in before]:
        schedules.discard(each.name)


def make(name: str, value: Any) -> Callable[[], object]:
    """Declare one with this argument, and what it needs besides."""
    options: dict[str, Any] = {"input": Ordered(), "name": "property.schedule", "saga": Trip, "cron": "0 6 * * *"}
    if name in ("every", "offset"):
        options = {**options, "cron": None, "every": timedelta(hours=1)}
    return lambda: Schedule(**{**options, name: value})


@pytest.mark.parametrize("name", ARGUMENTS)
def test_each_argument(name: str) -> None:
    """Refused when it is declared; the message says which argument."""
    taken = 0
    odd = [*odd_values(), *(CRONS if name == "cron" else ZONES if name == "timezone" else ())]
    for value in odd:
        schedules.discard("property.schedule")
        try:
            said = told(make(name, value), (SagaError,))
        except AssertionError as problem:
            raise AssertionError(f"{name}={shown(value)}: {problem}") from problem
        assert not said or name in said or (name == "saga" and "Saga class" in said), (shown(value), said)
        taken += not said
    assert taken < (13 if name in ("name", "store") else 5), taken


def test_an_input_that_does_not_fit() -> None:
    """Refused, unless it can be one."""
    for value in odd_values():
        schedules.discard("property.schedule")
        said = told(make("input", value), (SagaError,))
        assert not said or "input" in said, (shown(value), said)


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("call", ["pause", "resume", "run"])
def test_what_is_asked_of_none(call: str) -> None:
    """A name that no schedule has, a reason or an actor that is none: an error, and nothing is written."""
    with declared(cron="0 6 1 1 *") as made, closing(DjangoStore("default").connect()) as wire:
        table.declare(wire, made)
        before = everything()

        def ask(name: Any, reason: Any = "rest", actor: Any = "somebody") -> object:
            if call == "run":
                return firing.run_now(wire, Settings(wake=False), name, reason=reason, actor=actor)
            if call == "pause":
                table.pause(wire, name, reason=reason, actor=actor)
                return None
            return table.resume(wire, name)

        for value in odd_values():
            try:
                assert told(lambda: ask(value), (SagaError,))  # noqa: B023 - called at once
                given = () if call == "resume" else ("reason", "actor")
                for name in given:
                    said = told(lambda: ask(NAME, **{name: value}), (SagaError,))  # noqa: B023
                    assert not said or name in said
                    before = before if said else everything()
            except AssertionError as problem:
                raise AssertionError(f"{call} {shown(value)}: {problem}") from problem
            assert everything() == before, shown(value)
