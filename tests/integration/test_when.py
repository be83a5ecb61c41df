"""`when=`: a step is done or skipped, decided once, and the log says which and why."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sagas import Refused
from sagas.states import Status
from tests.shop.sagas import Ordered
from tests.shop.waiting import Choosy, Whimsical, choice
from tests.shop.world import World
from tests.support.stories import begin, drain, entries, expire_leases, log_of, outbox
from tests.support.workers import begin_due, one_worker, run_batch

pytestmark = pytest.mark.usefixtures("shop")
NO_WAIT = timedelta(0)


def test_a_step_whose_condition_is_true_is_done(world: World) -> None:
    """It reads input and results of earlier steps; that it was chosen is in the log before its body begins."""
    saga = begin(Choosy, input=Ordered(20))
    drain()
    assert log_of(saga)[2:4] == ["step_chosen wrap", "step_done wrap"]
    assert world.of("post")[0].argument == "done"
    assert world.of("wrap")[0].attempt == 1


@pytest.mark.parametrize(("number", "reason"), [(5, "its condition is false"), (13, "unlucky")])
def test_a_step_whose_condition_is_false_is_skipped(number: int, reason: str, world: World) -> None:
    """With the reason that was given; later steps see that it was skipped."""
    saga = begin(Choosy, input=Ordered(number))
    drain()
    (skipped,) = [entry for entry in entries(saga) if entry.kind == "step_skipped"]
    assert (skipped.step, skipped.data["reason"]) == ("wrap", reason)
    assert Choosy.get(key="a").status == Status.COMPLETED
    assert world.names == ["post"]
    assert world.of("post")[0].argument == "skipped"


def test_a_skipped_step_is_not_undone(world: World) -> None:
    """It never happened, so nothing of it is taken back."""
    world.plan("post", Refused("no such address"))
    begin(Choosy, input=Ordered(5))
    drain()
    assert Choosy.get(key="a").status == Status.COMPENSATED
    assert world.names == ["post"]


def test_a_chosen_step_is_undone(world: World) -> None:
    """Like any other."""
    world.plan("post", Refused("no such address"))
    begin(Choosy, input=Ordered(20))
    drain()
    assert world.names == ["wrap", "post", "unwrap"]


@pytest.mark.parametrize("chosen", [True, False])
def test_what_was_decided_once_stays(chosen: bool, world: World) -> None:
    """Also when the body fails, its worker dies, and the condition has changed its mind meanwhile."""
    choice.answers = [chosen, not chosen, not chosen, not chosen]
    world.plan("wrap", RuntimeError("once"))
    begin(Whimsical)
    with one_worker() as dies:
        begun = begin_due(dies)
        run_batch(dies, begun)  # decides, and no more
        assert len(choice.answers) == 3
        begin_due(dies)  # and dies
    expire_leases()
    drain()
    assert len(choice.answers) == 3
    assert Whimsical.get(key="a").status == Status.COMPLETED
    assert world.count()["wrap"] == (2 if chosen else 0)


def test_a_worker_that_dies_while_it_decides(world: World) -> None:
    """Nothing of the step has begun, so the next worker decides: no outcome is in doubt."""
    choice.answers = [False]
    saga = begin(Whimsical)
    with one_worker() as dies:
        begin_due(dies)
    expire_leases()
    drain()
    assert log_of(saga)[1:] == ["step_skipped wrap", "step_done post", "completed"]


def test_a_condition_that_raises_is_tried_again(world: World) -> None:
    """An error in a condition is no answer; nothing of an external step is in doubt for it."""
    choice.answers = [RuntimeError("not now"), True]
    saga = begin(Whimsical)
    drain()
    assert log_of(saga)[1:4] == ["step_failed wrap", "step_chosen wrap", "step_done wrap"]
    assert not entries(saga)[1].data.get("unknown")


def test_a_condition_that_keeps_raising_turns_the_saga_back(world: World) -> None:
    """Nothing of the step can have happened: it is undone by doing nothing."""
    choice.answers = [RuntimeError("broken")] * 3
    saga = begin(Whimsical)
    drain()
    found = Whimsical.get(key="a")
    assert (found.status, choice.answers) == (Status.COMPENSATED, [])
    assert "broken" in found.error and world.names == []
    assert outbox(saga) == []


def test_a_skip_with_an_odd_reason_is_stored(world: World) -> None:
    """Whatever text it is, cleaned and cut: a reason cannot stop a saga."""
    choice.answers = ["\0" + "x" * 5000]
    saga = begin(Whimsical)
    drain(skip=NO_WAIT)
    (skipped,) = [entry for entry in entries(saga) if entry.kind == "step_skipped"]
    assert 1900 < len(skipped.data["reason"]) < 2010 and "\0" not in skipped.data["reason"]
