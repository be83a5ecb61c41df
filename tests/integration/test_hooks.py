"""Callbacks and Django signals: after the commit, at most once, and never at the expense of the worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.dispatch import receiver

from sagas import Refused, hooks
from sagas.events import Kind
from sagas.hooks import Happening
from sagas.states import Status
from sagas_django import signals
from sagas_django.models import SagaRow
from tests.shop.sagas import Charge, Externals, Local, Trip
from tests.shop.world import World
from tests.support.stories import begin, begin_many, drain

pytestmark = pytest.mark.usefixtures("shop")


@pytest.fixture(autouse=True)
def no_listeners() -> Iterator[None]:
    """Forget what a test has registered, Django's own apart."""
    before = hooks.listeners()
    yield
    for each in hooks.listeners():
        if each not in before:
            hooks.off(each.callback)


def told(*kinds: Kind | str, **options: Any) -> list[Happening]:
    """Registers a callback; gives the list of what it is told."""
    found: list[Happening] = []
    hooks.on(*kinds, **options)(found.append)
    return found


def test_a_callback_is_told_what_happened(world: World) -> None:
    """Which saga, what, and why; of ends, of parking, of turning back."""
    ends, parked = told(Kind.COMPLETED, Kind.COMPENSATED), told(Kind.PARKED)
    world.plan("charge", Refused("no"), saga="undone")
    world.always("charge", OSError("no route"), saga="parked")
    done, undone = begin(Trip, "done"), begin(Trip, "undone")
    waits = begin(Charge, "parked")
    drain()
    hooks.drain()
    assert {(each.saga_id, each.kind, each.status) for each in ends} == {
        (done.id, Kind.COMPLETED, Status.COMPLETED), (undone.id, Kind.COMPENSATED, Status.COMPENSATED),
    }  # fmt: skip
    (found,) = parked
    assert (found.saga_id, found.name, found.key, found.version) == (waits.id, "test.charge", "parked", 1)
    assert found.reason and found.seq > 0


def test_a_method_that_was_forgotten_is_told_nothing(world: World) -> None:
    """A bound method is made anew each time that it is named."""

    class Pager:
        def __init__(self) -> None:
            self.told: list[Happening] = []

        def page(self, happening: Happening) -> None:
            self.told.append(happening)

    pager, other = Pager(), Pager()
    for each in (pager, other):
        hooks.on(Kind.COMPLETED)(each.page)
    hooks.off(pager.page)
    begin(Local, "a")
    drain()
    hooks.drain(10)
    assert pager.told == [] and len(other.told) == 1


def test_only_after_the_commit(world: World) -> None:
    """What is told can be looked up, also of a local step, whose log entry commits with its own writes."""
    seen: list[str] = []

    @hooks.on(Kind.COMPLETED, name="test.local")
    def look(happening: Happening) -> None:
        try:
            seen.append(SagaRow.objects.get(pk=happening.saga_id).status)
        finally:
            connection.close()

    begin(Local, "a")
    begin(Trip, "not for it")
    drain()
    hooks.drain(10)
    assert seen == ["completed"]


def test_nothing_is_told_of_what_is_rolled_back(world: World) -> None:
    """A local step that fails in a shared transaction is told once, as what was recorded in the end."""
    failed = told(Kind.STEP_FAILED, times=None)
    world.plan("body", OSError("once"), saga="l-1")
    begin_many(Local, ["l-0", "l-1", "l-2"])
    drain()
    hooks.drain(10)
    assert [(each.key, each.attempt) for each in failed] == [("l-1", 1)]
    assert failed[0].error == "OSError: once"


def test_when_a_step_has_failed_so_often(world: World) -> None:
    """Once, when it has, and not at every failure after that."""
    twice = told("step_failed", times=2)
    each_time = told("step_failed", times=None)
    world.plan("book", OSError("1"), OSError("2"), OSError("3"))
    begin(Trip, "a")
    drain()
    hooks.drain(10)
    assert [each.failures for each in twice] == [2]
    assert [each.failures for each in each_time] == [1, 2, 3]


def test_a_failing_callback_hurts_nobody(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The saga goes on, the other callbacks are told, and the log says which one failed over which saga."""

    @hooks.on(Kind.COMPLETED)
    def broken(happening: Happening) -> None:
        raise RuntimeError("no")

    ends = told(Kind.COMPLETED)
    begin(Externals, "a")
    with caplog.at_level(logging.ERROR):
        drain()
        hooks.drain(10)
    assert [each.key for each in ends] == ["a"]
    assert "broken failed, told that saga test.externals" in caplog.text and "(key 'a'): completed" in caplog.text


def test_a_slow_callback_holds_up_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sagas end while it hangs; what is too much is dropped, with a warning."""
    monkeypatch.setattr(hooks, "MOST_WAITING", 2)
    monkeypatch.setattr(hooks, "_current", None)
    hangs, may_end = threading.Event(), threading.Event()

    @hooks.on(Kind.COMPLETED)
    def slow(happening: Happening) -> None:
        hangs.set()
        may_end.wait(30)

    begin(Externals, "first")
    try:
        monkeypatch.setattr(hooks, "LAST_ORDERS", 0.0)
        drain()
        assert hangs.wait(10)
        begin_many(Externals, [f"s-{number}" for number in range(5)])
        drain()
        assert SagaRow.objects.exclude(finished_at=None).count() == 6
    finally:
        may_end.set()
        hooks.drain(10)


def test_django_signals(world: World) -> None:
    """The same as signals: the sender is the saga class, an error of a receiver stays with it."""
    found: list[tuple[Any, Happening]] = []

    @receiver(signals.saga_parked, sender=Charge)
    def parked(sender: Any, happening: Happening, **_: Any) -> None:
        found.append((sender, happening))

    @receiver(signals.saga_parked)
    def broken(sender: Any, **_: Any) -> None:
        raise RuntimeError("no")

    world.always("charge", OSError("no route"))
    saga = begin(Charge, "a")
    try:
        drain()
        hooks.drain(10)
    finally:
        signals.saga_parked.disconnect(parked, sender=Charge)
        signals.saga_parked.disconnect(broken)
    ((sender, happening),) = found
    assert sender is Charge and happening.saga_id == saga.id


def test_callbacks_get_over_a_lost_connection(world: World) -> None:
    """Their thread has connections of its own, which are looked after as those of threads that run steps are."""
    asked: list[int] = []

    @hooks.on(Kind.COMPLETED)
    def ask(happening: Happening) -> None:
        with connection.cursor() as cursor:
            cursor.execute("select pg_backend_pid()")
            asked.append(cursor.fetchone()[0])

    for key in "ab":
        begin(Externals, key)
        drain()
        hooks.drain(10)
        with connection.cursor() as cursor:
            cursor.execute("select pg_terminate_backend(%s)", [asked[-1]])
    assert len(asked) == 2


def test_where_nobody_listens_nothing_is_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sagas without callbacks or receivers pay for a look into a set."""

    def never(*_: Any) -> Any:
        raise AssertionError("made for nobody")

    monkeypatch.setattr(hooks, "_happening", never)
    begin(Trip, "a")
    drain()
    assert SagaRow.objects.exclude(finished_at=None).count() == 1


@pytest.mark.parametrize(("kinds", "times"), [((), 1), (("parked",), 0), (("no such",), 1)])
def test_wrong_registrations(kinds: tuple[str, ...], times: int) -> None:
    """Are refused when they are made."""
    with pytest.raises(ValueError, match=r"kind|at least 1|valid Kind"):
        hooks.on(*kinds, times=times)
