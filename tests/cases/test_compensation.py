"""Incidents of undoing: too early, twice, never, in the wrong order, or in silence."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import new_class
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from sagas import UNKNOWN, Refused, Retry, Saga, Unknown, external_step, step
from sagas.plan import Plan
from sagas.registry import registry
from sagas.states import Status
from sagas.testing.processes import ProcessGroup
from sagas_django.models import SagaRow
from tests.shop.models import Booking
from tests.shop.sagas import Effects, Externals, Local, Locals, Ordered, Pivoted, Trip
from tests.shop.world import World, world
from tests.support.stories import (
    NO_WAIT,
    Aside,
    begin,
    begin_many,
    dedupe,
    drain,
    entries,
    expire_leases,
    log_of,
    outbox,
    second_connection,
)
from tests.support.workers import begin_due, one_worker, run_batch, run_together

pytestmark = pytest.mark.usefixtures("shop")
ROOT = Path(__file__).parents[2]
LOST = ConnectionError("no reply")
TWICE = Retry(max_attempts=2, first=10)


class Slow(Saga[Ordered], name="case.slow", version=1):
    """A charge that takes longer than it may; its undo needs no result."""

    @external_step(retry=TWICE, timeout=0.05)
    def charge(self) -> str:
        return world.act("charge", self)  # type: ignore[no-any-return]

    @charge.compensate
    def refund(self, charge: str | Unknown) -> None:
        world.act("refund", self, charge)


class Basket(Saga[Ordered], name="case.basket", version=1):
    """Reserves three items in one step, each a guarded effect."""

    @external_step(retry=TWICE)
    def reserve(self) -> None:
        for item in ("one", "two", "three"):
            self.effect(item, lambda key, item=item: world.ask(item, self, key), returns=str)  # type: ignore[misc]

    @reserve.compensate
    def release(self, nothing: Unknown | None) -> None:
        world.act("release", self, nothing)


class Shelf(Saga[Ordered], name="case.shelf", version=1):
    """The same in a local step."""

    @step(retry=TWICE)
    def reserve(self) -> None:
        for item in ("one", "two"):
            Booking.objects.create(saga=self.key, step=item)
        raise Refused("no third one")

    @reserve.compensate
    def release(self, nothing: None) -> None:
        world.act("release", self)


class Forgetful(Saga[Ordered], name="case.forgetful", version=1):
    """Would like to keep something on `self`."""

    @external_step
    def charge(self) -> str:
        with pytest.raises(AttributeError, match="return it as the step's result"):
            self.reference = "in memory"  # type: ignore[attr-defined]
        return world.act("charge", self)  # type: ignore[no-any-return]

    @charge.compensate
    def refund(self, charge: str) -> None:
        world.act("refund", self, (charge, self.input.number))

    @step(compensate=None)
    def confirm(self) -> None:
        world.act("confirm", self)


def nonsense(kind: str) -> Callable[[Any], Any]:
    """A body that returns what is no result."""

    async def coroutine() -> None: ...

    def generator() -> Any:
        yield 1

    return {
        "nothing": lambda run: None,
        "exception": lambda run: ValueError("returned, not raised"),
        "coroutine": lambda run: coroutine(),
        "generator": lambda run: generator(),
    }[kind]


class Odd(Saga[Ordered], name="case.odd", version=1):
    """A step that may return anything, between two others."""

    @external_step(compensate=None)
    def first(self) -> None:
        world.act("first", self)

    @external_step(compensate=None)
    def second(self) -> None:
        return world.act("second", self)  # type: ignore[no-any-return]

    @external_step(compensate=None)
    def third(self) -> None:
        world.act("third", self)


class OddLocal(Saga[Ordered], name="case.odd_local", version=1):
    """The same with local steps."""

    @step(compensate=None)
    def second(self) -> None:
        Booking.objects.create(saga=self.key, step="second")
        return world.act("second", self)  # type: ignore[no-any-return]

    @step(compensate=None)
    def third(self) -> None:
        world.act("third", self)


def numbered(number: int) -> Any:
    """A step of a long saga."""

    def body(self: Any) -> int:
        if number == LONG - 1:
            raise Refused("the last one")
        return number

    def undo(self: Any, result: int) -> None:
        world.act("undo", self, result)

    body.__annotations__ = {"return": int}
    undo.__annotations__ = {"result": int, "return": None}
    body.__name__, undo.__name__ = f"step_{number}", f"undo_{number}"
    declared = external_step(body)
    declared.compensate(undo)
    return declared


LONG = 130  # steps: more than any batch; with their undoing 259 entries


def long_body(body: dict[str, Any]) -> None:
    body.update({f"step_{number}": numbered(number) for number in range(LONG)})
    body["__module__"] = __name__


Long: Any = new_class("Long", (Saga[Ordered],), {"name": "case.long", "version": 1}, long_body)


def request_cancel(saga: type[Saga[Any]] = Trip, key: str = "a") -> None:
    """Ask for a cancel, as the outside does."""
    saga.cancel(key=key, reason="enough")


def test_cp01_no_undo_beside_an_attempt_that_still_runs(
    world: World, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A charge past its timeout keeps its lease: nobody refunds until it has ended, and then once, with its result."""
    settings.SAGAS = {"WAKE": False, "GRACE": 0.1}
    running, overrun, go_on = threading.Event(), threading.Event(), threading.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "overrun" in record.getMessage():
                overrun.set()

    def slow(run: Any) -> str:
        running.set()
        assert go_on.wait(20)
        return "charge-7"

    world.plan("charge", slow)
    begin(Slow)
    watch = Watch()
    logging.getLogger("sagas.worker").addHandler(watch)
    worker = Aside(drain)
    try:
        assert running.wait(20)
        assert overrun.wait(20)
        request_cancel(Slow)
        drain(check=False)
        assert world.names == ["charge"]
    finally:
        go_on.set()
        logging.getLogger("sagas.worker").removeHandler(watch)
        worker.join()
    drain()
    assert Slow.get(key="a").status == Status.CANCELLED
    assert [(call.name, call.argument) for call in world.calls] == [("charge", None), ("refund", "charge-7")]


@pytest.mark.parametrize("as_message", [True, False])
def test_cp03_a_charge_delivered_after_its_refund(as_message: bool, world: World) -> None:
    """The old message, or a row that stands for the charge once more: `closed` is an answer of its own. It never
    counts as done, and it advances nothing."""
    world.plan("confirm", Refused("no"))
    world.plan("refund", LOST)
    run = begin(Trip)
    run_together()
    [charging] = outbox(run)
    assert charging.step == "charge"
    drain(skip=NO_WAIT)
    [undoing] = outbox(run)
    assert (undoing.step, undoing.direction, dedupe(run)["charge:do:0"]) == ("charge", "undo", "closed")
    with second_connection() as other:
        if as_message:
            other.execute("update sagas_outbox set holder = 'relay:x' where id = %s", [undoing.id])
            with one_worker() as worker:
                assert worker.begin(other, [(charging.id, charging.token)], published=True) == []
            other.execute("update sagas_outbox set holder = null where id = %s", [undoing.id])
        else:
            other.execute(
                "insert into sagas_outbox (saga_id, kind, step, direction, queue)"
                " values (%s, 'step', 'charge', 'do', 'default')",
                [run.id],
            )
            run_together()
            other.execute("delete from sagas_outbox where id <> %s", [undoing.id])
    assert len(world.of("charge")) == 1
    drain()
    assert (len(world.of("charge")), Trip.get(key="a").status) == (1, Status.COMPENSATED)


def test_cp04_the_key_of_an_undo_never_changes(world: World) -> None:
    """A refund whose reply was lost has the same key in the next process; and a guard that answers from memory leaves
    no transaction open. The dedupe table is in the saga's own database by construction."""
    seen: list[Any] = []

    def look(run: Any) -> str:
        with second_connection() as other:
            seen.append(
                other.execute(
                    "select count(*) from pg_stat_activity"
                    " where datname = current_database() and state like 'idle in transaction%%'"
                ).fetchone()
            )
        raise LOST

    world.plan("credit", LOST, look, Refused("no"))
    world.plan("refund", LOST)
    begin(Effects)
    drain()
    assert seen == [(0,)]
    first, second = world.of("refund")
    assert first.key == second.key
    assert first.key == world.of("pay")[0].key.replace(":do:", ":undo:")
    assert world.count()["debit"] == 1


class Stop(BaseException):
    """As `asyncio.CancelledError` is: no `Exception`."""


@pytest.mark.parametrize(
    ("answer", "attempts"),
    [
        (Refused("declined"), 1),
        (ConnectionError("transient"), 3),
        (KeyError("undeclared"), 3),
        (Stop(), 3),
        (asyncio.CancelledError(), 3),
    ],
    ids=["refused", "transient", "undeclared", "base", "cancelled"],
)
def test_cp05_refusals_and_errors_are_told_apart(answer: Any, attempts: int, world: World) -> None:
    """Refused: undone at once. Anything else that is raised is retried to the limit, also what is no `Exception`."""
    world.always("confirm", answer)
    begin(Trip)
    drain()
    assert (len(world.of("confirm")), Trip.get(key="a").status) == (attempts, Status.COMPENSATED)
    assert len(world.of("refund")) == 1


def test_cp05_a_falsy_result_is_a_result(world: World) -> None:
    """Only what is raised is a failure."""
    world.plan("charge", "")
    begin(Trip)
    drain()
    assert (Trip.get(key="a").status, len(world.of("charge"))) == (Status.COMPLETED, 1)
    assert world.of("confirm")[0].argument[1] == ""


def test_cp05_no_raise_of_one_body_harms_its_neighbours(world: World) -> None:
    """What is no `Exception` ends one attempt, not the batch: results of bodies before and after it are recorded."""
    world.plan("book", Stop(), saga="odd")
    world.plan("charge", Stop(), saga="odd")
    begin_many(Trip, ["before", "odd", "after"])
    run_together()
    run_together()
    for key in ("before", "after"):
        assert log_of(Trip.get(key=key)) == ["started", "step_done book", "step_done charge"]
    drain()
    assert {saga.status for saga in SagaRow.objects.all()} == {Status.COMPLETED}


def test_cp07_a_failing_undo_is_seen_and_repaired(world: World) -> None:
    """It parks, with its reason, and is never called compensated. What would be undone after it waits (the order is
    part of the promise); `retry` goes on with the refund and repeats nothing before it."""
    world.plan("confirm", Refused("no"))
    world.always("refund", LOST)
    begin(Trip)
    drain()
    saga = Trip.get(key="a")
    assert (saga.status, saga.parked_from) == (Status.PARKED, Status.COMPENSATING)
    assert "compensation failed" in saga.error
    assert world.names == ["book", "charge", "confirm", "refund", "refund", "refund"]
    world.reset()
    call_command("sagas", "retry", "test.trip:a", reason="the bank is back")
    drain()
    assert (Trip.get(key="a").status, world.names) == (Status.COMPENSATED, ["refund", "unbook"])


def without(plan: Plan, name: str) -> Plan:
    """The plan of a release that forgot a step."""
    return replace(plan, steps=tuple(each for each in plan.steps if each.name != name))


def without_undo(plan: Plan, name: str) -> Plan:
    """The plan of a release in which a step has no compensation any more."""
    return replace(plan, steps=tuple(replace(each, undo=None) if each.name == name else each for each in plan.steps))


@pytest.mark.parametrize("gone", ["class", "step", "undo"])
def test_cp08_an_undo_that_is_gone_from_the_code_is_not_skipped(
    gone: str, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A done step that this process does not know, or cannot undo any more, keeps the saga from counting as
    compensated: its row waits and is reported, its neighbours go on, and with the code back it is undone."""
    world.plan("confirm", Refused("no"), saga="a")
    run = begin(Trip)
    run_together(goes_on=False)
    run_together(goes_on=False)
    begin(Externals, "neighbour")
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "sagas.worker"):
        if gone == "class":
            known = {place: each for place, each in registry._sagas.items() if each is not Trip}
            patch.setattr(registry, "_sagas", known)
        else:
            patch.setattr(Trip, "plan", (without if gone == "step" else without_undo)(Trip.plan, "charge"))
            patch.setattr(Trip, "_fingerprint", "of other steps")
        drain(skip=NO_WAIT, check=False)
    assert Externals.get(key="neighbour").status == Status.COMPLETED
    assert (Trip.get(key="a").status, world.names) == (Status.RUNNING, ["book", "charge"])
    assert str(run.id) in caplog.text
    [row] = outbox(run)
    assert (row.holder, row.deliveries) == (None, 0)
    drain()
    assert Trip.get(key="a").status == Status.COMPENSATED
    assert world.names == ["book", "charge", "confirm", "refund", "unbook"]


def test_cp08_compensated_is_counted_step_by_step(world: World) -> None:
    """The end is what the log says of each step: as many undone as were done, and only then compensated."""
    world.plan("confirm", Refused("no"))
    run = begin(Trip)
    drain()
    log = log_of(run)
    assert [line.split()[1] for line in log if line.startswith("undo_done")] == ["charge", "book"]
    assert log[-1] == "compensated"
    assert log.index("undo_done book") == len(log) - 2


def test_cp09_an_undo_is_given_what_was_stored(world: World) -> None:
    """Another process has only Postgres: input and result come from there, and a body that would keep something on
    `self` for later is told at once that it cannot."""
    world.plan("charge", "reference-7")
    world.plan("confirm", Refused("no"))
    begin(Forgetful, input=Ordered(7))
    for _ in range(3):
        assert run_together() == 1  # each by a worker of its own
    assert Forgetful.get(key="a").status == Status.COMPENSATED
    assert [(call.name, call.argument) for call in world.calls] == [
        ("charge", None), ("confirm", None), ("refund", ("reference-7", 7)),
    ]  # fmt: skip


@pytest.mark.parametrize("when", ["charging", "between", "refunding", "twice"])
def test_cp10_a_cancel_never_cancels_the_undoing(when: str, world: World) -> None:
    """While it charges: its result is awaited, then refunded. Between steps: refunded. While it refunds: no effect.
    Twice: as once. Another worker applies the cancel before the body that is under way comes to its end."""

    def cancel_is_applied() -> None:
        request_cancel()
        assert run_together() == 1

    def charge(run: Any) -> str:
        for _ in range({"charging": 1, "twice": 2}.get(when, 0)):
            cancel_is_applied()
        return "charge-7"

    def refund(run: Any) -> None:
        if when == "refunding":
            cancel_is_applied()

    world.plan("charge", charge)
    world.plan("refund", refund)
    if when == "refunding":
        world.plan("confirm", Refused("no"))
    run = begin(Trip)
    if when == "between":
        run_together()
        run_together()
        request_cancel()
    drain()
    assert Trip.get(key="a").status == (Status.COMPENSATED if when == "refunding" else Status.CANCELLED)
    undone = [call.name for call in world.calls if call.name in ("refund", "unbook")]
    assert (undone, world.of("refund")[0].argument) == (["refund", "unbook"], "charge-7")
    assert log_of(run).count("cancel_requested") == (2 if when == "twice" else 1)


def test_cp11_a_cancel_beside_the_last_commit(world: World) -> None:
    """Of cancel and completion one wins each time, and the end says which: everything stays, or everything is undone.

    `cancel()` only inserts a row (callers never wait for workers), so its return value cannot say who won.
    """
    keys = [str(number) for number in range(60)]
    begin_many(Trip, keys)
    close = threading.Barrier(2)

    def meet(run: Any) -> str:
        close.wait(20)
        if int(run.key) % 3:
            close.wait(20)
        return "confirmed"

    def cancel_each() -> None:
        with one_worker() as worker:
            for _ in keys:
                close.wait(20)  # the last body runs: its commit and the cancel race from here on,
                key = world.of("confirm")[-1].saga
                request_cancel(key=key)
                begun = begin_due(worker)
                if int(key) % 3 == 1:
                    close.wait(20)  # from here on,
                run_batch(worker, begun)
                if int(key) % 3 == 2:
                    close.wait(20)  # or the cancel is applied before it

    world.plan("confirm", *[meet] * len(keys))
    while len(world.of("charge")) < len(keys):
        run_together()
    canceller = Aside(cancel_each)
    with one_worker() as worker:
        confirming = begin_due(worker)
        assert len(confirming) == len(keys)
        for delivery in confirming:
            run_batch(worker, [delivery])
    canceller.join()
    drain()
    assert len(world.of("confirm")) == len(keys)
    for key in keys:
        saga = Trip.get(key=key)
        assert saga.status in (Status.COMPLETED, Status.CANCELLED)
        kept = Booking.objects.filter(saga=key, step="book").count()
        refunds = sum(call.saga == key for call in world.of("refund"))
        assert (kept, refunds) == ((1, 0) if saga.status is Status.COMPLETED else (0, 1)), key


@pytest.mark.parametrize("error", [Refused("no third one"), LOST])
def test_cp12_what_happened_of_a_half_done_step_is_undone(error: Exception, world: World) -> None:
    """Two items were reserved, the third is refused for good: `Refused` cannot mean that nothing happened, since the
    guard knows better, so the step is undone as unknown. After another error it parks, unless its author said
    COMPENSATE."""
    world.always("three", error)
    begin(Basket)
    drain()
    saga = Basket.get(key="a")
    assert world.count()["one"] == world.count()["two"] == 1
    if isinstance(error, Refused):
        assert [call.argument for call in world.of("release")] == [UNKNOWN]
        assert saga.status == Status.SETTLING  # undone as unknown: looked at once more later
    else:
        assert (saga.status, world.of("release")) == (Status.PARKED, [])


def test_cp12_refused_before_any_effect_did_nothing(world: World) -> None:
    """Refused by the first effect of the first attempt: nothing to undo."""
    world.plan("one", Refused("sold out"))
    begin(Basket)
    drain()
    assert (Basket.get(key="a").status, world.names) == (Status.COMPENSATED, ["one"])


def test_cp12_a_local_step_is_all_or_nothing(world: World) -> None:
    """What a local step wrote before it was refused is rolled back with it; it needs no undo."""
    begin(Shelf)
    drain()
    assert (Shelf.get(key="a").status, Booking.objects.count(), world.names) == (Status.COMPENSATED, 0, [])


def test_cp13_a_long_log_is_read_whole(world: World) -> None:
    """More steps than any batch, a crash in the middle of undoing: all are undone, in exact reverse order."""
    run = begin(Long)
    with one_worker(goes_on=True) as worker:
        world.plan("undo", *[None] * 5, SystemExit("a crash"))
        run_batch(worker, begin_due(worker))
    with one_worker() as worker:
        expire_leases()
        with connection.cursor() as cursor:
            cursor.execute("update sagas_outbox set due_at = now()")
        assert begin_due(worker)  # and is never heard of again
    expire_leases()
    drain()
    assert Long.get(key="a").status == Status.COMPENSATED
    undone = [entry.step for entry in entries(run) if entry.kind == "undo_done"]
    assert undone == [f"step_{number}" for number in reversed(range(LONG - 1))]
    assert [entry.seq for entry in entries(run)] == list(range(len(entries(run))))
    assert len(entries(run)) > 250


def test_cp13_many_requests_of_one_saga_do_not_wait_for_each_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty requests in one batch are sixty decisions one after the other. None of them lost a race, so none pauses."""
    monkeypatch.setattr("sagas.recorder.PAUSE", 0.02)  # the first of pauses that grow with each lost race
    monkeypatch.setattr("sagas.recorder.LONGEST_PAUSE", 1.0)
    run = begin(Local)
    with connection.cursor() as cursor:
        cursor.execute("update sagas_outbox set due_at = now() + '1 day'")
    with transaction.atomic():
        for _ in range(60):
            request_cancel(Local)
    began = time.monotonic()
    run_together()
    assert time.monotonic() - began < 12  # growing pauses would take 35 s
    assert log_of(run)[1:] == ["cancel_requested"] * 60


def test_cp13_one_corrupt_log_among_twenty(world: World) -> None:
    """A saga whose log cannot be read stops nobody else; it is neither completed nor forgotten."""
    keys = [str(number) for number in range(20)]
    begin_many(Trip, keys)
    run_together()
    odd = Trip.get(key="7")
    with second_connection() as other, other.transaction():
        other.execute("set local session_replication_role = replica")  # past the trigger that guards history
        other.execute(
            'update sagas_log set data = \'{"result": {"no": "number"}}\' where saga_id = %s and seq = 1', [odd.id]
        )
    drain(check=False)
    found = {key: Trip.get(key=key).status for key in keys}
    assert {status for key, status in found.items() if key != "7"} == {Status.COMPLETED}
    assert found["7"] == Status.PARKED
    assert "does not fit" in Trip.get(key="7").error


def test_cp14_a_restarted_worker_knows_all_sagas(
    other_database: str, fresh_database: str, process_group: ProcessGroup
) -> None:
    """A worker process that was only told the settings finds the saga classes itself, before any is started there."""
    for saga in (Locals, Externals, Pivoted):
        begin(saga, using="other")
    with one_worker("other") as worker:
        assert len(begin_due(worker)) == 3  # in flight, and everything is killed
    expire_leases("other")
    worker_process = process_group.python(
        "-m", "django", "sagas", "worker", "--until-idle",
        name="worker", env={"DATABASE_URL": fresh_database, "DJANGO_SETTINGS_MODULE": "tests.settings"}, cwd=ROOT,
    )  # fmt: skip
    assert worker_process.wait(60) == 0, worker_process.output()
    for saga in (Locals, Externals, Pivoted):
        assert saga.get(key="a", using="other").status == Status.COMPLETED


@pytest.mark.parametrize("redelivered", [False, True])
def test_cp15_a_step_that_needed_three_attempts_is_undone_once(redelivered: bool, world: World) -> None:
    """However many attempts began: one undo, given the result of the one that succeeded."""
    world.plan("charge", LOST, LOST, "third")
    world.plan("confirm", Refused("no"))
    run = begin(Trip)
    drain(skip=NO_WAIT) if redelivered else None
    if redelivered:
        [row] = outbox(run)
        with second_connection() as other, one_worker() as worker:
            for token in range(row.token + 1):
                assert worker.begin(other, [(row.id, token)], published=True) == []
    drain()
    assert [call.argument for call in world.of("refund")] == ["third"]
    assert (len(world.of("charge")), Trip.get(key="a").status) == (3, Status.COMPENSATED)


@pytest.mark.parametrize("saga", [Odd, OddLocal])
@pytest.mark.parametrize("kind", ["nothing", "exception", "coroutine", "generator"])
def test_cp17_what_is_no_result_does_not_count_as_done(kind: str, saga: type[Saga[Any]], world: World) -> None:
    """None is success; an exception that was returned, a coroutine that nobody ran and a generator are not, and the
    next step does not begin."""
    world.plan("second", nonsense(kind))
    begin(saga)
    drain()
    done = kind == "nothing"
    assert bool(world.of("third")) is done
    assert len(world.of("second")) == 1
    wanted = Status.COMPLETED if done else (Status.PARKED if saga is Odd else Status.COMPENSATED)
    assert saga.get(key="a").status == wanted
    assert done or "cannot be" in saga.get(key="a").error or "nobody ran" in saga.get(key="a").error
