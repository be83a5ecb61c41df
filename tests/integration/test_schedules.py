"""What becomes of ticks: each starts its saga once, and late, early, paused and changed ones do what was said."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from sagas import CatchUp, InvalidInput, Overlap, Schedule
from sagas.doctor import examine
from sagas.errors import NotPossible
from sagas.schedules import firing, table
from sagas.schedules.declaration import schedules
from sagas.settings import Settings
from sagas.testing.moving import Clock
from sagas_django.models import LogEntry, OutboxRow, SagaRow
from sagas_django.operate import DjangoDesk
from sagas_django.store import DjangoStore
from tests.relay.plant import wait_until
from tests.shop.sagas import Locals, Ordered, Pivoted, Trip
from tests.shop.world import World
from tests.support.schedules import NAME, Raises, at, declared
from tests.support.stories import drain

pytestmark = pytest.mark.usefixtures("shop")
SETTINGS = Settings(wake=False)


@pytest.fixture
def wire(shop: str) -> Iterator[psycopg.Connection[Any]]:
    with closing(DjangoStore("default").connect()) as connection:
        yield connection


@pytest.fixture
def look(wire: psycopg.Connection[Any], time_machine: Clock) -> Callable[[float], list[str]]:
    """Looks after all schedules at an hour; returns the keys of the sagas that this started."""

    def look(hours: float, by: psycopg.Connection[Any] = wire) -> list[str]:
        time_machine.move_to(at(hours))
        before = set(SagaRow.objects.values_list("pk", flat=True))
        for _ in range(10):
            if not firing.fire_due(by, SETTINGS, schedules.all()):
                break
        return [saga.key for saga in SagaRow.objects.order_by("pk") if saga.pk not in before]

    return look


Look = Callable[[float], list[str]]


def known(connection: psycopg.Connection[Any], *some: Schedule[Any]) -> None:
    for each in some:
        table.declare(connection, each)


def row(connection: psycopg.Connection[Any], name: str = NAME) -> table.Row:
    (found,) = table.rows(connection, name)
    return found


def key(hour: int) -> str:
    return f"{NAME}@2027-03-01T{hour:02}:00:00+00:00"


@pytest.fixture
def hourly(wire: psycopg.Connection[Any], time_machine: Clock) -> Iterator[Schedule[Any]]:
    """Declared at half past five, and looked at once."""
    time_machine.move_to(at(5.5))
    with declared() as schedule:
        known(wire, schedule)
        firing.fire_due(wire, SETTINGS, [schedule])
        yield schedule


def test_each_tick_starts_its_saga_once(hourly: Schedule[Any], look: Look, wire: Any, world: World) -> None:
    """Nothing before the first tick; then one saga each, with the tick in its key, its input made from the tick."""
    assert look(5.9) == []
    assert look(6) == [key(6)]
    assert look(6) == look(6.5) == []
    assert look(7.001) == [key(7)]
    entry = LogEntry.objects.order_by("saga_id", "seq").first()
    assert entry.data["saga"]["input"] == {"number": 6}
    assert SagaRow.objects.get(key=key(6)).headers == {"schedule": NAME}
    found = row(wire)
    assert (found.last_at, found.last_key, found.next_at, found.open) == (at(7), key(7), at(8), True)
    drain()
    assert not row(wire).open and row(wire).last_status == "completed"


def test_nobody_is_told_how_often_to_look(hourly: Schedule[Any], wire: Any, time_machine: Clock) -> None:
    """A relay knows how long it may sleep."""
    time_machine.move_to(at(5.75))
    assert firing.seconds_left(wire, [hourly]) == 900
    table.pause(wire, NAME, reason="not tonight")
    assert firing.seconds_left(wire, [hourly]) is None


class Gate:
    """An `input=` that stands still, once, in the middle of a tick, as a process does that is stopped there."""

    def __init__(self) -> None:
        self.reached, self.go_on, self.armed = threading.Event(), threading.Event(), False

    def __call__(self, tick: datetime) -> Ordered:
        if self.armed:
            self.armed = False
            self.reached.set()
            assert self.go_on.wait(30)
        return Ordered(tick.hour)


@pytest.fixture
def stopped(shop: str, wire: Any, time_machine: Clock) -> Iterator[Callable[..., Any]]:
    """Another relay, which was stopped at six after it had looked; give what others do meanwhile."""
    gate = Gate()

    def play(meanwhile: Callable[[], Any], **options: Any) -> Any:
        time_machine.move_to(at(5.5))
        with declared(input=gate, **options) as schedule, closing(DjangoStore("default").connect()) as other:
            known(wire, schedule)
            firing.fire_due(wire, SETTINGS, [schedule])
            time_machine.move_to(at(6))
            gate.armed = True
            with ThreadPoolExecutor(1) as pool:
                late = pool.submit(firing.fire_due, other, SETTINGS, [schedule])
                try:
                    assert gate.reached.wait(30)
                    seen = meanwhile()
                finally:
                    gate.go_on.set()
                late.result(30)
            return seen

    yield play
    gate.go_on.set()


def test_a_relay_that_comes_late_does_nothing(stopped: Any, look: Look, wire: Any) -> None:
    """It was stopped over two ticks; the others went on, and it neither starts anything nor turns the schedule back."""

    def others_go_on() -> table.Row:
        assert look(6) == [key(6)]
        assert look(7) == [key(7)]
        return row(wire)

    seen = stopped(others_go_on)
    after = row(wire)
    assert (after.revision, after.next_at, after.last_key) == (seen.revision, at(8), key(7))
    assert SagaRow.objects.count() == 2


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_two_relays_at_the_same_moment(
    isolation: str, hourly: Schedule[Any], shop: str, time_machine: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The second one waits for the first, finds that it was not the first, and complains of nothing."""
    time_machine.move_to(at(6))
    with (
        psycopg.connect(shop) as first,
        closing(DjangoStore("default").connect()) as second,
        ThreadPoolExecutor(1) as pool,
    ):
        second.execute(f"set default_transaction_isolation to '{isolation}'")  # type: ignore[call-overload]
        first.execute("update sagas_schedule set revision = revision + 1, look_at = %s", [at(7)])
        late = pool.submit(firing.fire_due, second, SETTINGS, [hourly])
        try:
            wait_until(lambda: _waits(shop, second.info.backend_pid), "the second to wait for the first")
        finally:
            first.commit()
        assert late.result(30)
    assert not SagaRow.objects.exists() and not caplog.records


def _waits(url: str, pid: int) -> bool:
    with psycopg.connect(url) as connection:
        found = connection.execute("select wait_event_type from pg_stat_activity where pid = %s", [pid]).fetchone()
    return found == ("Lock",)


def test_a_skipped_tick_is_not_started_by_who_comes_late(stopped: Any, look: Look, wire: Any) -> None:
    """The run by hand came first, so the tick was skipped; who had looked before that must not start it now."""

    def run_by_hand() -> None:
        firing.run_now(wire, SETTINGS, NAME, reason="the report is needed now")
        assert look(6) == []

    stopped(run_by_hand, overlap=Overlap.SKIP)
    assert [saga.key.partition("-")[0] for saga in SagaRow.objects.all()] == [f"{NAME}@run"]
    assert "was skipped" in row(wire).note


@pytest.mark.parametrize("change", ["paused", "forgotten", "changed"])
def test_what_changes_in_the_middle_of_a_tick_holds(stopped: Any, wire: Any, change: str) -> None:
    """A schedule that is paused, forgotten or changed starts nothing from that moment on."""

    def meanwhile() -> None:
        if change == "paused":
            table.pause(wire, NAME, reason="stop")
        elif change == "changed":
            with declared(cron="30 * * * *") as other:
                assert table.declare(wire, other) == "changed"
        else:
            wire.execute("delete from sagas_schedule")

    stopped(meanwhile)
    assert not SagaRow.objects.exists()


def test_a_tick_is_not_started_again_when_its_schedule_is_new_again(hourly: Any, look: Look, wire: Any) -> None:
    """The key says which tick it is: a schedule that was forgotten and looks back finds its saga there."""
    assert look(6) == [key(6)]
    wire.execute("update sagas_schedule set next_at = %s, look_at = %s, last_key = null", [at(6), at(6)])
    assert look(6.5) == []
    assert row(wire).next_at == at(7)


# --- ticks that were missed ---


@pytest.mark.parametrize(
    ("options", "started", "note"),
    [
        ({"catch_up": CatchUp.LAST}, [9], "ticks from 2027-03-01 06:00:00 UTC on were missed, and left out"),
        ({"catch_up": CatchUp.NONE}, [], "ticks from 2027-03-01 06:00:00 UTC on were missed, and left out"),
        ({"catch_up": CatchUp.ALL}, [6, 7, 8, 9], ""),
        (
            {"catch_up": CatchUp.ALL, "most": 2},
            [8, 9],
            "ticks from 2027-03-01 06:00:00 UTC on were missed, and left out",
        ),
    ],
)
def test_catching_up(options: dict[str, Any], started: list[int], note: str, wire: Any, look: Look) -> None:
    """No relay ran from half past five to half past nine."""
    with declared(**options) as schedule:
        look(5.5)
        known(wire, schedule)
        assert look(5.6) == []
        assert look(9.5) == [key(hour) for hour in started]
        assert (row(wire).note, row(wire).next_at) == (note, at(10))
        assert look(10) == [key(10)]
        assert row(wire).note == ""


def test_a_little_late_is_not_missed(look: Look, wire: Any) -> None:
    """Also where nothing is made up for, a relay may take a moment."""
    with declared(catch_up=CatchUp.NONE) as schedule:
        look(5.5)
        known(wire, schedule)
        look(5.6)
        assert look(6 + 59 / 3600) == [key(6)]
        assert look(7 + 61 / 3600) == []


# --- runs that are still open ---


def test_skipping_while_the_last_run_is_open(look: Look, wire: Any, world: World) -> None:
    """Until it has ended, whatever became of it."""
    with declared(overlap=Overlap.SKIP) as schedule:
        look(5.5)
        known(wire, schedule)
        look(5.6)
        assert look(6) == [key(6)]
        assert look(7) == look(8) == []
        assert row(wire).note == "2027-03-01 08:00:00 UTC was skipped: the run before it was open"
        drain()
        assert look(9) == [key(9)]


@pytest.mark.parametrize(("catch_up", "then"), [(CatchUp.LAST, [[8], []]), (CatchUp.ALL, [[7], [8]])])
def test_queueing_behind_the_last_run(
    catch_up: CatchUp, then: list[list[int]], look: Look, wire: Any, world: World
) -> None:
    """A tick waits; with `LAST` the newest of them, with `ALL` each of them, one after the other."""
    with declared(overlap=Overlap.QUEUE, catch_up=catch_up) as schedule:
        look(5.5)
        known(wire, schedule)
        look(5.6)
        assert look(6) == [key(6)]
        assert look(7) == look(8) == []
        assert "waits for the run before it to end" in row(wire).note
        for hours, started in zip((8.1, 8.2), then, strict=True):
            drain()
            assert look(hours) == [key(hour) for hour in started]
        assert row(wire).next_at == at(9)


def test_cancelling_the_last_run(look: Look, wire: Any, world: World) -> None:
    """It is asked to be undone, once, and the tick waits until it is."""
    with declared(overlap=Overlap.CANCEL) as schedule:
        look(5.5)
        known(wire, schedule)
        look(5.6)
        assert look(6) == [key(6)]
        assert look(7) == look(7.01) == look(7.02) == []
        assert OutboxRow.objects.filter(kind="cancel").count() == 1
        drain()
        assert SagaRow.objects.get(key=key(6)).status == "cancelled"
        assert look(7.1) == [key(7)]


def test_a_run_that_cannot_be_undone_is_asked_once(look: Look, wire: Any, world: World) -> None:
    """It has parked after its pivot: its log does not grow with every look, nor with every tick, and a person who looks
    at it has time to decide."""
    world.always("invoice", OSError("no reply"))
    with declared(Pivoted, overlap=Overlap.CANCEL) as schedule:
        look(5.5)
        known(wire, schedule)
        look(5.6)
        assert look(6) == [key(6)]
        drain()
        for hours in (7, 7.01, 7.02, 8, 8.01):
            assert look(hours) == []
            drain()
    run = SagaRow.objects.get()
    asked = LogEntry.objects.filter(saga_id=run.pk, kind="cancel_requested")
    assert [entry.data["actor"] for entry in asked] == [f"schedule:{NAME}"]
    assert not run.cancel_requested and "waits for the run before it" in row(wire).note


def test_overlapping(look: Look, hourly: Any) -> None:
    """Unless something else is said, runs do not care for each other."""
    assert [look(hour) for hour in (6, 7)] == [[key(6)], [key(7)]]


# --- people ---


def test_pause_and_resume(hourly: Any, look: Look, wire: Any, time_machine: Clock) -> None:
    """What the pause leaves out is not made up for, also if no relay looked meanwhile; other schedules go on."""
    with declared(name="test.other") as other:
        known(wire, other)
        table.pause(wire, NAME, actor="ann", reason="stock-taking")
        assert look(6) == ["test.other@2027-03-01T06:00:00+00:00"]
        assert look(7) == ["test.other@2027-03-01T07:00:00+00:00"]
        assert (row(wire).actor, row(wire).reason) == ("ann", "stock-taking")
        time_machine.move_to(at(7.25))
        assert table.resume(wire, NAME)
        assert not table.resume(wire, NAME)
        assert look(7.5) == []
        assert key(8) in look(8)


def test_running_now(hourly: Any, look: Look, wire: Any, time_machine: Clock) -> None:
    """Also while paused; the ticks stay as they are; the same form counts once; who asked, and why, is in the saga."""
    table.pause(wire, NAME, reason="stop")
    before, nonce = row(wire), uuid4()
    id, found = firing.run_now(wire, SETTINGS, NAME, reason="needed", actor="ann", nonce=nonce)
    assert firing.run_now(wire, SETTINGS, NAME, reason="needed", actor="ann", nonce=nonce) == (id, found)
    saga = SagaRow.objects.get()
    assert (saga.pk, saga.key) == (id, found)
    assert saga.headers == {"schedule": NAME, "reason": "needed", "actor": "ann"}
    after = row(wire)
    assert (after.next_at, after.look_at, after.paused, after.last_key) == (before.next_at, before.look_at, True, found)


def test_running_now_does_not_overlap_either(look: Look, wire: Any, world: World) -> None:
    """Where runs must not overlap, not even an operator makes them."""
    with declared(overlap=Overlap.SKIP) as schedule:
        known(wire, schedule)
        firing.run_now(wire, SETTINGS, NAME, reason="needed")
        with pytest.raises(NotPossible, match=r"its last run is open \(saga test\.nightly@run-"):
            firing.run_now(wire, SETTINGS, NAME, reason="needed")
        drain()
        firing.run_now(wire, SETTINGS, NAME, reason="needed")


def test_names_that_nobody_knows(hourly: Any, wire: Any) -> None:
    """A message says which there are."""
    for act in (table.pause, table.resume):
        with pytest.raises(InvalidInput, match=r"no schedule 'x' is in the table; there are: test\.nightly"):
            act(wire, "x", **({"reason": "r"} if act is table.pause else {}))
    with pytest.raises(InvalidInput, match=r"not declared in this process; did you mean 'test\.nightly'"):
        firing.run_now(wire, SETTINGS, "test.nightli", reason="r")
    with pytest.raises(InvalidInput, match="declared in this process, so the next relay would bring it back"):
        table.forget(wire, NAME)
    with pytest.raises(InvalidInput, match="say why"):
        table.pause(wire, NAME, reason=" ")


# --- code that changes ---


def test_a_schedule_without_code_waits(hourly: Any, look: Look, wire: Any) -> None:
    """It is not lost, and starts what its policy says when the code is back; gone for good it can be forgotten."""
    schedules.discard(NAME)
    assert look(7.5) == []
    schedules.add(hourly)
    assert look(7.6) == [key(7)]
    schedules.discard(NAME)
    table.forget(wire, NAME)
    assert table.rows(wire) == []
    schedules.add(hourly)


def test_a_changed_schedule(hourly: Any, look: Look, wire: Any, time_machine: Clock) -> None:
    """Other times count from the moment on at which they came; the same times lose no tick; a pause stays."""
    table.pause(wire, NAME, reason="stop")
    with declared(overlap=Overlap.SKIP) as same_times:
        assert (table.declare(wire, same_times), table.declare(wire, same_times)) == ("changed", "")
        assert (row(wire).next_at, row(wire).paused, row(wire).overlap) == (at(6), True, "skip")
    table.resume(wire, NAME)
    with declared(cron="30 * * * *") as other_times:
        time_machine.move_to(at(6.25))
        known(wire, other_times)
        assert row(wire).next_at == at(6.25)
        assert look(6.26) == []
        assert look(6.5) == [f"{NAME}@2027-03-01T06:30:00+00:00"]


def test_of_two_releases_the_newer_version_holds(look: Look, wire: Any) -> None:
    """An old relay that starts again does not bring the old one back; if only old ones are left, they take it over."""

    class Renewed(Trip, name="test.trip", version=2):  # type: ignore[misc]
        pass

    from sagas.registry import registry

    try:
        look(5.5)
        with declared(Renewed) as new:
            known(wire, new)
            look(5.6)
        with declared() as old:
            assert table.declare(wire, old) == ""
            assert look(6) == look(6.001) == []  # whoever has the newer one will do it
            assert look(6.01) == [key(6)]
            assert SagaRow.objects.get().version == 1
    finally:
        registry._sagas.pop(("test.trip", 2))


def test_other_sagas_do_not_count_as_the_last_run(look: Look, wire: Any) -> None:
    """A schedule that starts another saga from now on is not held up by the last run of the one before."""
    look(5.5)
    with declared(overlap=Overlap.SKIP) as schedule:
        known(wire, schedule)
        look(5.6)
        assert look(6) == [key(6)]
    with declared(Locals, overlap=Overlap.SKIP) as schedule:
        known(wire, schedule)
        assert look(7) == [key(7)]


# --- what goes wrong ---


def test_an_input_that_fails_does_not_lose_the_tick(look: Look, wire: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It is tried again, the schedule says what was wrong, and others go on."""
    broken: list[Exception] = []

    def input(tick: datetime) -> Ordered:
        if broken:
            raise broken[0]
        return Ordered(tick.hour)

    look(5.5)
    with declared(name="test.broken", input=input) as one, declared() as other:
        known(wire, one, other)
        look(5.6)
        broken.append(RuntimeError("no such table\x00"))
        with caplog.at_level(logging.ERROR, "sagas.schedules"):
            assert look(6) == [key(6)]
        assert "test.broken could not start its saga" in caplog.text
        assert row(wire, "test.broken").note.startswith("could not start its saga: RuntimeError: no such table")
        assert look(6 + 20 / 3600) == []
        broken.clear()
        assert look(6 + 31 / 3600) == ["test.broken@2027-03-01T06:00:00+00:00"]
        assert row(wire, "test.broken").note == ""


def test_an_input_that_fails_is_not_forgotten_with_its_tick(look: Look, wire: Any) -> None:
    """Where nothing is made up for, that tick is left out in the end; the schedule says why until one succeeds."""
    fails = Raises()
    with declared(catch_up=CatchUp.NONE, input=fails) as schedule:
        look(5.5)
        known(wire, schedule)
        look(5.6)
        fails.error = LookupError("no such table")
        for seconds in (0, 30, 61, 120):
            assert look(6 + seconds / 3600) == []
            assert row(wire).note.startswith("could not start its saga: LookupError: no such table")
        assert "; then ticks from 2027-03-01 06:00:00 UTC on were missed, and left out" in row(wire).note
        assert look(7) == [] and row(wire).note == "could not start its saga: LookupError: no such table"
        for hours in (8.5, 9.5):
            assert look(hours) == []
        assert row(wire).note.count("were missed") == 1
        assert [each.id for each in examine(DjangoDesk("default"))].count("failing-schedules") == 1
        fails.error = None
        assert look(10) == [key(10)] and row(wire).note == ""


def test_an_input_that_does_not_fit_at_last(look: Look, wire: Any) -> None:
    """Also what only shows at some tick delays its own schedule alone."""
    look(5.5)
    with declared(input=lambda tick: Ordered(tick.hour if tick.year == 2026 else "x")) as one:  # type: ignore[arg-type]
        known(wire, one)
        look(5.6)
        assert look(6) == []
        assert "could not start its saga: sagas.errors.InvalidInput: input.number" in row(wire).note


def test_seconds(wire: Any, look: Look) -> None:
    """Intervals are counted from one moment, so that everybody agrees."""
    with declared(every=timedelta(seconds=90), offset=timedelta(seconds=5), catch_up=CatchUp.ALL) as schedule:
        look(5.999)
        known(wire, schedule)
        look(5.9991)
        assert [found[-14:-6] for found in look(6.05)] == ["06:00:05", "06:01:35"]
