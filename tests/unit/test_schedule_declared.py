"""A schedule that is wrong is refused where it is declared, in words that say what to write instead."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sagas import CatchUp, DefinitionError, Overlap, Saga, Schedule, external_step
from sagas.schedules.declaration import schedules
from sagas.schedules.policy import HELD, LATE, Policy, plan
from sagas.schedules.timing import Every


class Nightly(Saga[int], name="test.declared.nightly", version=1):
    @external_step(compensate=None)
    def act(self) -> None: ...


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    before = {each.name for each in schedules.all()}
    yield
    for each in schedules.all():
        if each.name not in before:
            schedules.discard(each.name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"give either cron=\"0 6 \* \* \*\" or every=timedelta\(minutes=15\)"),
        ({"cron": "0 6 * * *", "every": timedelta(hours=1)}, "give either cron="),
        ({"cron": "0 6 * *"}, "4 fields instead of five: minute, hour, day of the month, month, day of the week"),
        ({"cron": "*/5 * * * * *"}, r"6 fields instead of five.*says every=timedelta\(seconds=\.\.\.\)"),
        ({"cron": "60 6 * * *"}, r"cron='60 6 \* \* \*': Bad minute; the fields are minute \(0-59\)"),
        ({"cron": "0 6 * * *#1"}, r"cron='0 6 \* \* \*#1': Bad day-of-week"),
        ({"cron": "1-2-3 6 * * *"}, "Bad minute"),
        ({"cron": "@daily"}, r"cron='@daily': write '0 0 \* \* \*'"),
        ({"cron": "0 0 30 2 *"}, r"Bad day-of-month"),
        ({"cron": "0 0 31 4 *"}, r"Bad day-of-month"),
        ({"cron": 5}, "a text such as '0 6 "),
        ({"cron": "0 6 * * *", "timezone": "Europe/Berlim"}, "no such time zone; did you mean 'Europe/Berlin'"),
        ({"cron": "0 6 * * *", "timezone": "../etc/passwd"}, "there is no such time zone"),
        ({"cron": "0 6 * * *", "timezone": None}, "there is no such time zone"),
        ({"cron": "0 6 * * *", "offset": timedelta(minutes=1)}, "offset= goes with every="),
        ({"every": timedelta(milliseconds=999)}, "at least 1 second"),
        ({"every": timedelta(days=9999)}, "at most ten years"),
        ({"every": 60}, "every=60: a timedelta of at least 1 second"),
        ({"every": timedelta(hours=1), "offset": timedelta(hours=1)}, "less than every="),
        ({"cron": "0 6 * * *", "catch_up": "last"}, "catch_up='last': one of NONE, LAST, ALL of CatchUp"),
        ({"cron": "0 6 * * *", "overlap": True}, "one of ALLOW, SKIP, QUEUE, CANCEL of Overlap"),
        ({"cron": "0 6 * * *", "most": 0}, "most=0: a whole number from 1 to 1000"),
        ({"cron": "0 6 * * *", "catch_up": CatchUp.ALL, "overlap": Overlap.SKIP}, "use CatchUp.LAST, or Overlap.QUEUE"),
        (
            {"cron": "0 6 * * *", "catch_up": CatchUp.NONE, "overlap": Overlap.QUEUE},
            "use CatchUp.LAST, or Overlap.SKIP",
        ),
        ({"cron": "0 6 * * *", "name": ""}, "name: 1 to 200 characters"),
        ({"cron": "0 6 * * *", "name": "x" * 201}, "name: 1 to 200 characters, not 201"),
        ({"cron": "0 6 * * *", "name": "a\x00b"}, "has a NUL"),
        ({"cron": "0 6 * * *", "input": "x"}, r"input for the tick 2026-01-01T06:00:00\+00:00: InvalidInput: input"),
        ({"cron": "0 6 * * *", "input": lambda tick: tick}, "input for the tick .*or a function of the tick"),
        ({"cron": "0 6 * * *", "input": lambda: 1}, "input for the tick .*TypeError"),
        ({"cron": "0 6 * * *", "input": lambda tick: 1 // 0}, "ZeroDivisionError"),
    ],
)
def test_what_is_wrong_is_said_where_it_is_declared(options: dict[str, Any], words: str) -> None:
    """Which schedule of which saga, what is wrong, and what to write instead; and it does not enter."""
    with pytest.raises(DefinitionError, match=words) as refused:
        Schedule(Nightly, **({"input": 1} | options))
    assert str(refused.value).startswith("schedule ") and "of Nightly" in str(refused.value)
    assert schedules.find("test.declared.nightly") is None


def test_something_else_than_a_saga() -> None:
    """A Saga class without a name cannot be started either."""
    for wrong in (Saga, int, "test.declared.nightly"):
        with pytest.raises(DefinitionError, match="a Saga class with a name and a version comes first"):
            Schedule(wrong, cron="0 6 * * *", input=1)  # type: ignore[arg-type]


def test_two_schedules_of_a_saga_need_two_names() -> None:
    """And the message says where the other one is."""
    Schedule(Nightly, cron="0 6 * * *", input=1)
    with pytest.raises(DefinitionError, match=r"test_schedule_declared, line \d+ has one of this name already"):
        Schedule(Nightly, cron="0 7 * * *", input=1)
    other = Schedule(Nightly, cron="0 7 * * *", input=1, name="test.declared.later")
    assert schedules.get("test.declared.later") is other


def hourly(input: int) -> Schedule[int]:
    """What a project may have to say the same of many schedules."""
    return Schedule(Nightly, cron="0 * * * *", input=input)


@pytest.mark.parametrize("hour", [0, 1])
def test_schedules_of_one_line_need_names_too(hour: int) -> None:
    """In a loop, or through a helper, also where they differ in nothing but the input: none replaces another one."""
    inputs = iter(range(3))

    def declare_all() -> None:
        for number in inputs:
            Schedule(Nightly, cron=f"0 {hour * number} * * *", input=number)

    for declare in (declare_all, lambda: [hourly(number) for number in (0, 1)]):
        with pytest.raises(DefinitionError, match=r"line \d+ has one of this name already"):
            declare()
        assert schedules.get("test.declared.nightly").input(datetime.now(UTC)) == 0
        schedules.discard("test.declared.nightly")
    assert next(inputs) == 2


MODULE = """
from sagas import Schedule
from tests.unit.test_schedule_declared import Nightly, hourly

def own(): return Schedule(Nightly, cron="0 8 * * *", input=1, name="test.declared.own")

found = [hourly(1), own(), Schedule(Nightly, cron="0 8 * * *", input=1, name="test.declared.third")]
"""


def test_a_module_that_is_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its schedules take the place of those that it declared before, also where a helper elsewhere makes them, or the
    class of the saga is the same as before."""
    (tmp_path / "declares_schedules.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("declares_schedules")
    before = module.found
    importlib.reload(module)
    assert not {*map(id, before)} & {*map(id, module.found)}
    assert [schedules.get(each.name) for each in before] == module.found


def test_what_a_schedule_says_about_itself() -> None:
    """Its ticks, their keys and inputs can be had without a database, for tests of one's own."""
    daily = Schedule(Nightly, cron="0 6 * * MON", timezone="Europe/Berlin", input=lambda tick: tick.day)
    first, second = daily.upcoming(datetime(2027, 3, 20, tzinfo=UTC), 2)
    assert [first.isoformat(), second.isoformat()] == ["2027-03-22T06:00:00+01:00", "2027-03-29T06:00:00+02:00"]
    assert (daily.key(first), daily.input(second)) == ("test.declared.nightly@2027-03-22T06:00:00+01:00", 29)
    assert list(daily.ticks(first, second)) == [second]


def test_the_fingerprint_is_of_what_counts() -> None:
    """Anything but the input and the name: those change nothing about its ticks."""
    one = Schedule(Nightly, cron="0  6 * * mon", input=1, name="a")
    assert one.fingerprint == Schedule(Nightly, cron="0 6 * * MON", input=2, name="b").fingerprint
    others: list[dict[str, Any]] = [
        {"cron": "0 7 * * MON"}, {"timezone": "Europe/Berlin"}, {"overlap": Overlap.SKIP}, {"catch_up": CatchUp.ALL},
        {"most": 7},
    ]  # fmt: skip
    prints = {
        Schedule(Nightly, **({"cron": "0 6 * * MON", "input": 1, "name": f"c{n}"} | each)).fingerprint
        for n, each in enumerate(others)
    }
    assert len(prints | {one.fingerprint}) == 1 + len(others)


def test_every_tick_is_settled_one_way() -> None:
    """Whatever the policies, the moments and the state of the last run: the plan leads past what it started."""
    minute, start = Every(interval=timedelta(minutes=1)), datetime(2027, 1, 1, tzinfo=UTC)
    for catch_up in CatchUp:
        for overlap in Overlap:
            for missed in (timedelta(seconds=-1), timedelta(0), LATE, timedelta(hours=1)):
                for open in (False, True):
                    policy = Policy(catch_up=catch_up, overlap=overlap, most=5)
                    now = start + missed
                    made = plan(minute, policy, since=start, now=now, open=open)
                    assert len(made.start) <= (5 if catch_up is CatchUp.ALL and overlap is Overlap.ALLOW else 1)
                    assert all(start <= tick <= now for tick in made.start)
                    assert list(made.start) == sorted(set(made.start))
                    assert made.next_at not in made.start and made.last not in {made.next_at}
                    held = open and overlap in (Overlap.QUEUE, Overlap.CANCEL) and made.next_at <= now
                    assert made.look_at == (now + HELD if held else made.next_at)
                    assert not (open and overlap is not Overlap.ALLOW and made.start)
