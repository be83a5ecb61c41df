"""What an operator says of a step that a saga parked over: the result is checked, applied and told to later steps."""

from __future__ import annotations

from typing import Any

import pytest

from sagas import InvalidInput, engine
from sagas.engine import SagaRun
from sagas.states import Status
from sagas_django.models import OutboxRow
from tests.integration.test_operate_waits import refused, said
from tests.shop.sagas import Charge, Trip
from tests.shop.world import World
from tests.support.stories import begin, dedupe, drain, entries, log_of, outbox

pytestmark = pytest.mark.usefixtures("shop")


def parked(world: World, saga: Any = Trip) -> SagaRun:
    """A saga that parked over its charge."""
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    run = begin(saga)
    drain()
    assert engine.find(None, id=run.id).status == Status.PARKED
    return run


def say(run: SagaRun, kind: str, **given: Any) -> None:
    engine.request(None, kind, id=run.id, step="charge", reason="on the statement", actor="ann", **given)


def test_done_gives_later_steps_its_result(world: World) -> None:
    """As if the step had returned it; the log says whose word that is, and no worker asks the bank again."""
    run = parked(world)
    say(run, "mark_done", result="ch-7")
    drain()
    assert Trip.get(key="a").status == Status.COMPLETED and world.count()["charge"] == 3
    assert world.of("confirm")[0].argument[1] == "ch-7"
    word, done = entries(run)[-4:-2]
    assert (word.kind, word.data["actor"], word.data["reason"]) == ("resolved", "ann", "on the statement")
    assert (done.kind, done.data["source"], done.data["result"]) == ("step_done", "operator", "ch-7")
    assert dedupe(run)["charge:do:0"] == "closed" and outbox(run) == []


def test_a_result_of_another_type_is_refused_before_anything_is_written(world: World) -> None:
    """The step returns a text; what later steps could not read never gets into the log."""
    run = parked(world)
    before = log_of(run)
    for result in (7, None, ["ch-7"]):
        with pytest.raises(InvalidInput, match="result of step 'charge'"):
            say(run, "mark_done", result=result)
    assert (log_of(run), outbox(run)) == (before, [])


def test_not_done_undoes_what_came_before(world: World) -> None:
    """And not the step itself."""
    run = parked(world)
    say(run, "mark_not_done")
    drain()
    assert Trip.get(key="a").status == Status.COMPENSATED and world.names[-1] == "unbook"
    assert world.count()["refund"] == 0


def test_a_word_is_not_applied_after_the_saga_has_moved_on(world: World) -> None:
    """A retry is applied first: it may have done what the operator says was not done."""
    run = parked(world, Charge)
    engine.request(None, "retry", id=run.id, reason="once more")
    say(run, "mark_not_done")
    world.plan("charge", *[ConnectionError("no reply")] * 3)
    drain()
    assert Charge.get(key="a").status in (Status.PARKED, Status.COMPLETED)
    assert [entry.data.get("ignored") for entry in entries(run) if entry.kind == "resolved"] == [True]


def test_undone_by_hand(world: World) -> None:
    """A compensation that parked counts as done."""
    world.plan("refund", *[ConnectionError("no reply")] * 3)
    world.plan("confirm", *[ValueError("no")] * 3)
    run = begin(Trip)
    drain()
    assert Trip.get(key="a").parked_from == Status.COMPENSATING
    say(run, "mark_undone")
    drain()
    assert Trip.get(key="a").status == Status.COMPENSATED and world.names[-1] == "unbook"


def test_the_command_says_what_it_means_and_wants_one_outcome(world: World) -> None:
    """`resolve`: the result is JSON of the step's type; what is not possible is refused with what is."""
    parked(world)
    resolve = ("resolve", "test.trip:a", "charge", "--reason", "on the statement")
    assert "--done, --not-done, --skip, --compensated" in refused(*resolve)
    assert "with one of" in refused(*resolve, "--skip", "--not-done")
    assert refused(*resolve, "--skip").startswith("resolve --skip: The saga goes on without this step. ")
    assert "Pass --yes" in refused(*resolve, "--skip")
    assert "result of 'charge' is JSON of str" in refused(*resolve, "--done", "7", "--yes")
    answer = refused(*resolve, "--compensated", "--yes")
    assert answer.startswith("resolve charge --compensated: saga test.trip") and "possible now: retry" in answer
    assert "resolve charge --not-done" in answer and "mark_" not in answer
    assert not OutboxRow.objects.filter(kind__startswith="mark").exists()
    assert "resolve --done of saga" in said(*resolve, "--done", '"ch-7"', "--yes")
    drain()
    text = said("show", "test.trip:a")
    assert "decided by an operator" in text and "answered by an operator" in text
    assert said("replay", "test.trip:a")
