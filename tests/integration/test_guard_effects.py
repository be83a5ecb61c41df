"""Guarded effects: several in one step, each had once however often the step is tried."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command

from sagas import Refused
from sagas.states import Status
from sagas_django.models import DedupeRecord
from tests.shop.sagas import Effects, LocalEffect
from tests.shop.world import World
from tests.support.start_many import wait_until_blocked
from tests.support.stories import (
    NO_WAIT,
    begin,
    bring_forward,
    dedupe,
    drain,
    entries,
    expire_leases,
    log_of,
    second_connection,
)
from tests.support.workers import begin_due, one_worker

pytestmark = pytest.mark.usefixtures("shop")

LOST = ConnectionError("no reply")
HOURS = timedelta(hours=2)  # more than `settle_after`


def test_each_effect_has_a_key_of_its_own(world: World) -> None:
    """Made of saga, step, name of the effect and direction; the answers are remembered."""
    run = begin(Effects)
    drain()
    assert [call.key for call in world.calls[1:]] == [f"{run.id}:pay/debit:do:0", f"{run.id}:pay/credit:do:0"]
    assert dedupe(run) == {"pay/debit:do:0": "done", "pay/credit:do:0": "done"}
    assert DedupeRecord.objects.get(pk=f"{run.id}:pay/debit:do:0").response == "debit-2"
    assert entries(run)[1].data["result"] == "debit-2credit-3"


def test_what_was_had_is_not_asked_for_again(world: World) -> None:
    """The second effect failed: the retry finds the answer of the first and asks for the second only."""
    world.plan("credit", LOST)
    run = begin(Effects)
    drain()
    assert world.count() == {"pay": 2, "debit": 1, "credit": 2}
    assert len({call.key for call in world.of("credit")}) == 1
    assert entries(run)[-2].data["result"] == "debit-2credit-5"


def test_an_effect_without_an_answer_is_tried_again_under_its_key(world: World) -> None:
    """Begun and never answered: tried again, the other side knows the key."""
    world.plan("debit", LOST)
    begin(Effects)
    drain()
    assert Effects.get(key="a").status == Status.COMPLETED
    assert len({call.key for call in world.of("debit")}) == 1


def test_another_request_under_the_same_name_is_refused(world: World) -> None:
    """A retry that asks for something else would be answered with the wrong thing: it fails instead."""

    def dearer(run: Any) -> None:
        world.amount = 200
        raise LOST

    world.plan("credit", dearer)
    run = begin(Effects)
    drain()
    assert (Effects.get(key="a").status, world.count()["debit"]) == (Status.PARKED, 1)
    assert "EffectMismatch" in str([entry.data for entry in entries(run)])


def test_an_answer_that_cannot_be_stored_parks(world: World) -> None:
    """It happened: not tried again, not undone blindly."""
    world.plan("debit", "a\x00b")
    run = begin(Effects)
    drain()
    assert (Effects.get(key="a").status, world.count()["debit"]) == (Status.PARKED, 1)
    assert "cannot be stored" in Effects.get(key="a").error
    assert dedupe(run)["pay/debit:do:0"] == "started"


def test_closed_stops_every_effect_of_the_step(world: World) -> None:
    """Once the compensation of the step has begun, a body that is still alive somewhere has no further effect."""

    def overtaken(run: Any) -> str:
        Effects.cancel(key="a", reason="enough")
        expire_leases()
        drain(check=False)
        return "debit-late"

    world.plan("debit", overtaken)
    run = begin(Effects)
    world.plan("pay", None, LOST, LOST)
    with one_worker() as worker:
        worker.run(worker.take_up(begin_due(worker)))
    assert dedupe(run)["pay:do:0"] == "closed"
    assert world.count()["credit"] == 0
    assert "undo_done pay" in log_of(run)


def test_not_in_a_local_step(world: World) -> None:
    """What a local step writes needs no guard, and a guard there could not keep its promise: a clear error."""
    begin(LocalEffect)
    drain()
    assert (LocalEffect.get(key="a").status, world.names) == (Status.COMPENSATED, [])
    assert "effect() is for external steps" in LocalEffect.get(key="a").error


def test_parked_effects_go_on_where_they_were(world: World) -> None:
    """An operator's retry keeps what was had."""
    world.plan("credit", *[LOST] * 3)
    begin(Effects)
    drain()
    assert Effects.get(key="a").status == Status.PARKED
    call_command("sagas", "retry", "test.effects:a", reason="the bank is back")
    drain()
    assert Effects.get(key="a").status == Status.COMPLETED
    assert world.count() == {"pay": 4, "debit": 1, "credit": 4}


def test_a_dead_worker_between_two_effects(world: World) -> None:
    """Whoever takes over finds what the dead one had."""
    world.plan("credit", SystemExit(1))
    begin(Effects)
    drain(skip=NO_WAIT)
    bring_forward()
    drain()
    assert world.count() == {"pay": 2, "debit": 1, "credit": 2}


def overtaken(answer: Any) -> Any:
    """A body that another worker takes over from, and whose saga is undone meanwhile."""

    def act(run: Any) -> Any:
        Effects.cancel(key="a", reason="enough")
        expire_leases()
        drain(skip=HOURS, check=False)
        return answer

    return act


@pytest.mark.parametrize("answer", ["debit-late", "a\x00b"], ids=["kept", "cannot be stored"])
def test_a_late_answer_of_an_effect_reopens(answer: str, world: World) -> None:
    """Heard after the saga was undone: the next effect is stopped, so no result will ever tell. The saga is told of
    this one, and its compensation called once more."""
    world.plan("debit", overtaken(answer))
    run = begin(Effects)
    with one_worker() as worker:
        worker.run(worker.take_up(begin_due(worker)))
    assert world.count() == {"pay": 1, "debit": 1, "refund": 2}
    assert Effects.get(key="a").status == Status.CANCELLED
    drain(skip=HOURS)
    assert log_of(run)[-4:] == ["late_answer pay", "settling pay", "settle_done pay", "cancelled"]
    assert world.count() == {"pay": 1, "debit": 1, "refund": 3}


@pytest.mark.parametrize("late", [False, True])
def test_refused_after_an_effect_that_may_have_happened(late: bool, world: World) -> None:
    """The body went on after a lost reply, and is refused something else: the first effect is in doubt, and undone."""

    def careless(run: Any) -> None:
        if not late:
            raise Refused("before anything was tried")
        with suppress(ConnectionError):
            run.effect("hold", lambda key: world.ask("hold", run, key), returns=str)
        raise Refused("no")

    world.plan("hold", LOST)
    world.plan("pay", careless)
    begin(Effects)
    drain(skip=HOURS)
    assert Effects.get(key="a").status == Status.COMPENSATED
    assert (world.count()["refund"] > 0) == late


def test_an_effect_that_refuses_did_nothing(world: World) -> None:
    """`Refused` out of the call itself: nothing is in doubt, and nothing is undone."""
    world.plan("debit", Refused("declined"))
    begin(Effects)
    drain()
    assert Effects.get(key="a").status == Status.COMPENSATED
    assert world.count() == {"pay": 1, "debit": 1}


def test_another_request_at_the_same_moment_is_refused(world: World) -> None:
    """Another attempt writes its line and has not committed it: this one waits, reads it, and compares."""
    run = begin(Effects)
    with one_worker() as worker, second_connection(autocommit=False) as other, ThreadPoolExecutor(1) as pool:
        [delivery] = begin_due(worker)
        other.execute(
            "insert into sagas_dedupe (key, saga_id, state, token, fingerprint) values (%s, %s, 'started', 1, 'other')",
            [f"{run.id}:pay/debit:do:0", run.id],
        )
        done = pool.submit(worker.run, worker.take_up([delivery]))
        wait_until_blocked(1)
        other.commit()
        done.result(30)
    assert world.names == ["pay"]
    assert "EffectMismatch" in str([entry.data for entry in entries(run)])


def test_one_name_for_two_effects_is_an_error(world: World) -> None:
    """In a loop, say: the second would be given the first one's answer and never happen. After an error the same name
    is tried again, as it should be."""

    def loop(run: Any) -> None:
        with suppress(ConnectionError):
            run.effect("item", lambda key: world.ask("item", run, key), returns=str)
        run.effect("item", lambda key: world.ask("item", run, key), returns=str)
        run.effect("item", lambda key: world.ask("item", run, key), returns=str)

    world.plan("item", LOST)
    world.always("pay", loop)
    run = begin(Effects)
    drain()
    assert (Effects.get(key="a").status, world.count()["item"]) == (Status.PARKED, 2)
    assert "give each effect of a step a name of its own" in str([entry.data for entry in entries(run)])
