"""What an operator says of a step over which a saga parked."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from sagas.events import Direction, Kind, MarkDone, MarkNotDone, MarkUndone, SkipStep, Source
from sagas.retry import Retry
from sagas.states import Status, StepStatus
from tests.support.machine_driver import ACCEPTS, DO, Did, Driven, local, pivot, plan, step, undo, wait

ONCE = Retry(max_attempts=1)
WORDS: Any = (MarkDone, MarkNotDone, SkipStep, MarkUndone)


def parked(*more: Any, **options: Any) -> Driven:
    """A saga that parked over its charge, of which nobody knows what became."""
    saga = Driven(plan(local(), step(**{"retry": ONCE, **options}), *more))
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    saga.must_be(Status.PARKED)
    return saga


def test_done_is_an_answer_and_goes_on() -> None:
    """The result is in the log as the operator's, the key is closed, and the next step has its row."""
    saga = parked(step("book"))
    saga.apply(MarkDone("charge", Raw(b'"c-1"'), "ann", "seen on the statement"))
    assert saga.kinds[-2:] == ["resolved charge", "step_done charge"]
    word, done = saga.last.entries
    assert (word.kind, word.data.actor, word.data.reason) == (Kind.RESOLVED, "ann", "seen on the statement")
    assert (done.kind, done.data.source, done.data.result) == (Kind.STEP_DONE, Source.OPERATOR, Raw(b'"c-1"'))
    assert saga.state.steps["charge"].result == done.seq and not saga.state.steps["charge"].do.unknown
    assert saga.marks == {"charge"} and saga.row is not None and saga.row.step == "book"
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_the_last_step_done_ends_the_saga() -> None:
    """Nothing is left to do."""
    saga = parked()
    saga.apply(MarkDone("charge"))
    saga.must_be(Status.COMPLETED)
    assert saga.row is None


def test_done_may_be_undone_later() -> None:
    """The compensation is given what the operator said."""
    saga = parked(step("book"))
    saga.apply(MarkDone("charge"))
    saga.deliver(Did.REFUSE)
    assert (saga.row and (saga.row.step, saga.row.direction)) == ("charge", Direction.UNDO)


def test_not_done_turns_back_without_it() -> None:
    """What came before is undone; the step itself is not, and its reason is in the saga's error."""
    saga = parked()
    saga.apply(MarkNotDone("charge", "ann", "no trace of it"))
    assert saga.state.steps["charge"].status is StepStatus.NOT_DONE and saga.marks == {"charge"}
    assert "no trace of it" in saga.state.error and (saga.row and saga.row.step) == "reserve"
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)


def test_not_done_in_doubt_plants_a_tombstone_and_is_settled() -> None:
    """Where the compensation accepts UNKNOWN it is called: the request may land yet."""
    saga = Driven(plan(local(), step(retry=ONCE, undo=ACCEPTS, has_resolve=True)))
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    saga.deliver(ask=Did.UNDECIDED)
    saga.must_be(Status.PARKED)
    saga.apply(MarkNotDone("charge"))
    assert (saga.row and saga.row.step) == "charge"
    saga.deliver(Did.OK)
    saga.deliver(Did.OK)
    saga.must_be(Status.SETTLING)


def test_a_pivot_may_be_said_to_have_happened_or_not() -> None:
    """And is never gone on without."""
    for word, status in ((MarkDone, Status.COMPLETED), (MarkNotDone, Status.COMPENSATING), (SkipStep, Status.PARKED)):
        saga = Driven(plan(local(), pivot(retry=ONCE)))
        saga.deliver(Did.OK)
        saga.deliver(Did.FAIL)
        saga.must_be(Status.PARKED)
        saga.apply(word("ship"))
        saga.must_be(status)


def test_what_follows_the_pivot_cannot_be_turned_back_from() -> None:
    """It can be said to have happened, or be gone on without."""
    for word, status in ((MarkNotDone, Status.PARKED), (SkipStep, Status.COMPLETED), (MarkDone, Status.COMPLETED)):
        saga = Driven(plan(pivot(), step("tell", undo=None, retry=ONCE)))
        saga.deliver(Did.OK)
        saga.deliver(Did.FAIL)
        saga.apply(word("tell"))
        saga.must_be(status)


def test_skip_goes_on_without_it() -> None:
    """It is never undone, also when the saga turns back later."""
    saga = parked(step("book"))
    saga.apply(SkipStep("charge", "ann", "settled in cash"))
    assert saga.state.steps["charge"].status is StepStatus.SKIPPED
    saga.deliver(Did.REFUSE)
    assert (saga.row and saga.row.step) == "reserve"
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)


@pytest.mark.parametrize("word", [MarkDone, SkipStep])
def test_a_cancel_that_was_asked_for_is_granted(word: Any) -> None:
    """The saga had parked on its way back, to learn what the step did; now it is known."""
    saga = parked(step("book"))
    saga.cancel()
    saga.deliver()
    saga.must_be(Status.PARKED)
    saga.apply(word("charge"))
    saga.must_be(Status.COMPENSATING)


def test_undone_by_hand() -> None:
    """The compensation counts as done, and what came before is undone."""
    saga = Driven(plan(local(), step(undo=undo(retry=ONCE)), step("book")))
    for did in (Did.OK, Did.OK, Did.REFUSE, Did.FAIL):
        saga.deliver(did)
    saga.must_be(Status.PARKED)
    for word in (MarkDone, MarkNotDone, SkipStep):
        saga.apply(word("charge"))
        assert saga.log[-1].data.ignored, "it did happen: that is not the question"
    saga.apply(MarkUndone("charge", "ann", "paid back by bank transfer"))
    assert saga.log[-1].data.source is Source.OPERATOR
    assert (saga.status, saga.row and saga.row.step) == (Status.COMPENSATING, "reserve")
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)


@pytest.mark.parametrize("word", WORDS)
def test_a_word_about_a_saga_that_has_moved_on_does_not_count(word: Any) -> None:
    """A retry may have done meanwhile what it says was not done: it is logged, and changes nothing."""
    saga = parked()
    seen, before = saga.state.seq, saga.state.steps
    saga.retry_now()
    saga.deliver(Did.FAIL)
    saga.must_be(Status.PARKED)
    before = saga.state.steps
    saga.apply(word("charge", seen=seen))
    assert (saga.status, saga.state.steps, saga.log[-1].data.ignored) == (Status.PARKED, before, True)


def test_a_word_about_a_saga_that_is_not_parked_is_noted() -> None:
    """It is logged, running, compensating and settling, and the work under way goes on."""
    for word in WORDS:
        saga, seen = Driven(plan(step(has_resolve=True, undo=ACCEPTS, retry=ONCE))), []
        for did in ({"body": Did.FAIL}, {"ask": Did.NOT_DONE}, {"body": Did.OK}, {"ask": Did.NOT_DONE}):
            seen.append(saga.status)
            before = saga.state.steps
            saga.apply(word("charge"))
            assert (saga.log[-1].kind, saga.log[-1].data.ignored) == (Kind.RESOLVED, True)
            assert saga.state.steps == before
            saga.deliver(**did)
        assert set(seen) == {Status.RUNNING, Status.COMPENSATING, Status.SETTLING}
        saga.must_be(Status.COMPENSATED)


def test_a_wait_may_be_said_to_be_over() -> None:
    """With what would have been its signal."""
    saga = Driven(plan(wait(), local("ship", undo=None)))
    saga.deliver()
    saga.deliver()
    saga.must_be(Status.PARKED)
    saga.apply(MarkDone("review", Raw(b'"yes"')))
    assert (saga.row and saga.row.step, saga.row and saga.row.direction) == ("ship", DO)
