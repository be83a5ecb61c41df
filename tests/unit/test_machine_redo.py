"""Pause and resume, and an operator's redo."""

from __future__ import annotations

import pytest

from sagas.events import Attempt, Entry, Kind, Redo, Resume, TimedOut
from sagas.fold import fold
from sagas.machine import decide, rows
from sagas.machine.look import PAUSE
from sagas.plan import OnTimeout
from sagas.retry import Retry
from sagas.states import Status, StepState, StepStatus
from tests.support.machine_driver import (
    ACCEPTS,
    COMPENSATE,
    DO,
    Did,
    Driven,
    local,
    pivot,
    plan,
    result,
    sleep,
    step,
    undo,
    wait,
)

ONCE = Retry(max_attempts=1)


# --- pause and resume --------------------------------------------------------------------------------------------


def test_what_is_under_way_is_finished_and_nothing_more_begins() -> None:
    """The step is recorded; the next one is put off until the resume, which wakes it."""
    saga = Driven(plan(step(), step("book")))
    saga.deliver(Did.OK, meanwhile=saga.pause)
    assert (saga.kinds[1:], saga.delay) == (["paused", "step_done charge"], PAUSE)
    saga.deliver()
    saga.resume()
    assert (saga.last.wake, saga.delay, saga.state.paused) == (True, 0.0, False)
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_a_resume_of_what_is_not_paused_wakes_nobody() -> None:
    """The log says that somebody asked."""
    saga = Driven(plan(step()))
    assert (saga.resume().wake, saga.kinds[-1]) == (False, "resumed")


def test_a_paused_saga_takes_no_signal_and_resume_does() -> None:
    """It is kept meanwhile; the decision that resumes the saga takes it."""
    saga = Driven(plan(wait(), local("ship", undo=None)))
    saga.deliver()
    saga.pause()
    saga.signal()
    assert (saga.state.steps["review"].signals, saga.last.wake) == ((3,), False)
    saga.resume()
    assert (saga.kinds[-1], saga.last.wake) == ("step_done review", True)
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_a_step_of_a_paused_saga_does_not_take_the_signal_of_the_next() -> None:
    """It is finished; the wait that follows begins with the resume."""
    saga = Driven(plan(step(), wait()))
    saga.signal()
    saga.deliver(Did.OK, meanwhile=saga.pause)
    assert saga.state.steps["review"].signals == (1,)
    saga.resume()
    saga.must_be(Status.COMPLETED)


def test_a_paused_sleep_ends_when_it_would_have() -> None:
    """Its time runs on; what is over when the saga is resumed is over at once."""
    saga = Driven(plan(sleep()))
    saga.deliver()
    saga.pause()
    saga.now += 100
    assert rows(saga.plan, saga.state, now=saga.now)[0].delay == PAUSE
    saga.resume()
    saga.deliver()
    saga.must_be(Status.COMPLETED)


@pytest.mark.parametrize("way", ["signal, resume", "resume, signal"])
def test_a_signal_to_a_saga_that_is_parked_and_paused(way: str) -> None:
    """It parked because the signal did not come: with the later of the two it goes on."""
    saga = Driven(plan(wait()))
    saga.deliver()
    saga.pause()
    saga.apply(TimedOut(Attempt(step="review", direction=DO, now=saga.now + 100)))  # it was under way
    saga.must_be(Status.PARKED)
    first, second = (saga.signal, saga.resume) if way == "signal, resume" else (saga.resume, saga.signal)
    first()
    saga.must_be(Status.PARKED)
    second()
    saga.must_be(Status.COMPLETED)


def test_pause_while_compensating() -> None:
    """The undo waits for the resume."""
    saga = Driven(plan(step(), step("book")))
    saga.deliver(Did.OK)
    saga.deliver(Did.REFUSE)
    saga.pause()
    saga.deliver()
    saga.resume()
    assert saga.delay == 0
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)


def test_a_resume_does_not_shorten_settling() -> None:
    """A late request has until `settle_after`, whoever paused the saga meanwhile."""
    saga = Driven(plan(step(undo=ACCEPTS, on_unknown=COMPENSATE, retry=ONCE)))
    saga.deliver(Did.FAIL)
    saga.deliver(Did.OK)
    waits = saga.delay
    saga.pause()
    saga.resume()
    assert (saga.state.paused, saga.last.wake, saga.delay) == (False, False, waits)
    assert saga.kinds[-2:] == ["paused", "resumed"]
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)


def test_pause_of_a_parked_saga() -> None:
    """Retried while it is paused, it begins after the resume."""
    saga = Driven(plan(step(retry=ONCE)))
    saga.deliver(Did.FAIL)
    saga.pause()
    saga.retry_now()
    assert (saga.status, saga.delay) == (Status.RUNNING, PAUSE)
    saga.resume()
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_a_resume_of_a_parked_saga_leaves_it_parked() -> None:
    """A pause and a park are two things: only a person ends the latter."""
    saga = Driven(plan(step(retry=ONCE)))
    saga.deliver(Did.FAIL)
    saga.pause()
    saga.resume()
    assert (saga.status, saga.state.paused, saga.row) == (Status.PARKED, False, None)


def test_a_finished_saga_is_not_paused() -> None:
    """It absorbs everything."""
    saga = Driven(plan(step()))
    saga.deliver(Did.OK)
    saga.pause()
    assert saga.kinds[-1] == "completed"
    assert decide(saga.plan, saga.state, Resume()).entries == ()


def test_the_whole_state_is_folded_from_the_log() -> None:
    """Signals, waits, choices, generations, pause and deadline too."""
    saga = Driven(plan(step(has_when=True, retry=ONCE), wait(), sleep()), deadline=5000)
    saga.signal()
    saga.signal()
    saga.deliver(chooses=Did.OK)
    saga.deliver(Did.FAIL)
    saga.redo("charge")
    saga.deliver(chooses=Did.OK)
    saga.deliver(Did.OK)
    saga.deliver()
    saga.pause()
    state = fold(saga.log)
    assert state == saga.state
    charge, review, pause = (state.steps[name] for name in ("charge", "review", "pause"))
    assert (charge.chosen, charge.generation, review.status, review.signals) == (True, 1, StepStatus.DONE, (2,))
    assert (pause.status, pause.until, state.paused) == (StepStatus.WAITING, saga.now + 100, True)
    assert (state.deadline, state.cancel_requested) == (1_005_000.0, False)


# --- redo --------------------------------------------------------------------------------------------------------


def test_redo_begins_a_new_generation() -> None:
    """As if it had never begun: under a new key, with a full budget, without a doubt; and the log says who said so."""
    saga = Driven(plan(step(retry=ONCE)))
    saga.deliver(Did.FAIL)
    saga.redo("charge")
    assert (saga.status, saga.state.steps["charge"]) == (Status.RUNNING, StepState(generation=1))
    assert (saga.log[-1].data.actor, saga.delay) == ("operator", 0.0)
    ran = saga.deliver(Did.OK).ran
    assert ran is not None
    assert ran.generation == 1
    saga.must_be(Status.COMPLETED)


def test_marks_are_about_the_generation() -> None:
    """A redo closes the former key, whose attempt may still be alive; an undo the key that was used last."""
    saga = Driven(plan(step(retry=ONCE), local("b", retry=ONCE)))
    saga.deliver(Did.FAIL)
    saga.redo("charge")
    assert [(mark.step, mark.state, mark.generation) for mark in saga.last.marks] == [("charge", "closed", 0)]
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    assert [(mark.step, mark.state, mark.generation) for mark in saga.last.marks] == [("charge", "closed", 1)]


def test_redo_from_an_earlier_step_does_all_of_them_again() -> None:
    """Those between it and where the saga parked, each under a new key; what was skipped is decided anew."""
    saga = Driven(plan(step("a", undo=None), step("b", has_when=True, undo=None), step("c", undo=None, retry=ONCE)))
    saga.deliver(Did.OK)
    saga.deliver(chooses=Did.SKIP)
    saga.deliver(Did.FAIL)
    saga.redo("a")
    assert saga.steps_of(Kind.REDONE) == ["a", "b", "c"]
    saga.deliver(Did.OK)
    saga.deliver(chooses=Did.OK)
    assert [saga.deliver(Did.OK).ran, saga.deliver(Did.OK).ran] != [None, None]
    assert {saga.state.steps[name].generation for name in "abc"} == {1}
    saga.must_be(Status.COMPLETED)


def test_redo_after_the_pivot() -> None:
    """What follows it may be done again, the pivot may not."""
    saga = Driven(plan(pivot(), step("tell", undo=None), step("file", undo=None, retry=ONCE)))
    for did in (Did.OK, Did.OK, Did.FAIL):
        saga.deliver(did)
    saga.redo("ship")
    assert (saga.log[-1].data.ignored, saga.status) == (True, Status.PARKED)
    saga.redo("tell")
    saga.deliver(Did.OK)
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


@pytest.mark.parametrize("name", ["a", "b", "d", "unheard of"])
def test_redo_is_ignored_where_it_is_not_legal(name: str) -> None:
    """Over a step that can be undone and happened, of what was not reached, and of nothing; all of it is logged."""
    saga = Driven(plan(step("a", undo=None), step("b"), step("c", retry=ONCE), step("d")))
    for did in (Did.OK, Did.OK, Did.FAIL):
        saga.deliver(did)
    steps = saga.state.steps
    saga.redo(name)
    assert (saga.steps_of(Kind.REDONE), saga.log[-1].data.ignored) == ([name], True)
    assert (saga.status, saga.state.steps) == (Status.PARKED, steps)
    saga.redo("c")
    assert saga.status is Status.RUNNING, "the step it parked over can be done again"


def test_redo_of_a_saga_that_is_not_parked_is_ignored() -> None:
    """Running, compensating, settling: it is logged, and nothing is forgotten."""
    saga = Driven(plan(step(has_resolve=True, undo=undo(accepts_unknown=True), retry=ONCE)))
    seen = []
    for deliver in (
        lambda: saga.deliver(Did.FAIL),
        lambda: saga.deliver(ask=Did.NOT_DONE),
        lambda: saga.deliver(Did.OK),
        lambda: saga.deliver(ask=Did.NOT_DONE),
    ):
        seen.append(saga.status)
        before = saga.state.steps
        saga.redo("charge")
        assert (saga.kinds[-1], saga.log[-1].data.ignored, saga.state.steps) == ("redone charge", True, before)
        deliver()
    assert set(seen) == {Status.RUNNING, Status.COMPENSATING, Status.SETTLING}
    assert decide(saga.plan, saga.state, Redo("charge")).entries == ()


def test_redo_of_a_saga_that_has_moved_on_is_ignored() -> None:
    """Parked over the same step again, after another attempt."""
    saga = Driven(plan(step(retry=ONCE)))
    saga.deliver(Did.FAIL)
    seen = saga.state.seq
    saga.retry_now()
    saga.deliver(Did.FAIL)
    saga.apply(Redo("charge", seen=seen))
    assert (saga.status, saga.log[-1].data.ignored, saga.last.marks) == (Status.PARKED, True, ())
    saga.apply(Redo("charge", seen=saga.state.seq))
    assert saga.status is Status.RUNNING


def test_redo_of_a_saga_parked_on_its_way_back_is_ignored() -> None:
    """Its compensation failed: forward is not where it goes."""
    saga = Driven(plan(step(undo=undo(retry=ONCE)), step("book")))
    for did in (Did.OK, Did.REFUSE, Did.FAIL):
        saga.deliver(did)
    saga.must_be(Status.PARKED)
    saga.redo("charge")
    assert (saga.status, saga.log[-1].data.ignored) == (Status.PARKED, True)


def test_redo_of_a_saga_that_is_to_be_cancelled_is_ignored() -> None:
    """Somebody was told that it would be undone."""
    saga = Driven(plan(step(retry=ONCE)))
    saga.deliver(Did.FAIL)
    saga.cancel()
    saga.deliver()
    saga.must_be(Status.PARKED)
    saga.redo("charge")
    assert (saga.status, saga.log[-1].data.ignored) == (Status.PARKED, True)


def test_redo_after_a_cancel_that_came_too_late() -> None:
    """It was granted while the pivot was under way; since that happened, nobody is owed an end."""
    saga = Driven(plan(pivot(), step("tell", undo=None, retry=ONCE)))
    saga.deliver(Did.OK, meanwhile=saga.cancel)
    saga.deliver(Did.FAIL)
    saga.redo("tell")
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


@pytest.mark.parametrize("name", ["a", "ship"])
def test_redo_never_leads_over_the_pivot(name: str) -> None:
    """Not even over one that was skipped: what follows it happened, and would be left if the saga turned back then."""
    saga = Driven(plan(local("a", undo=None), pivot(has_when=True), local("b", undo=None), local("c", retry=ONCE)))
    saga.deliver(Did.OK)
    saga.deliver(chooses=Did.SKIP)
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    saga.must_be(Status.PARKED)
    saga.redo(name)
    assert (saga.status, saga.log[-1].data.ignored) == (Status.PARKED, True)
    saga.redo("b")
    assert saga.status is Status.RUNNING


def test_redo_of_a_wait_takes_the_next_signal() -> None:
    """Signals that nobody took are kept: the second approval is for the second wait."""
    saga = Driven(plan(wait(), step(undo=None, retry=ONCE)))
    saga.signal(value=b"1")
    saga.signal(value=b"2")
    saga.deliver(Did.FAIL)
    saga.redo("review")
    assert (saga.state.steps["review"].result, saga.kinds[-1]) == (3, "step_done review")
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_redo_of_a_wait_waits_anew() -> None:
    """With its full time."""
    saga = Driven(plan(wait(on_timeout=OnTimeout.PARK)))
    saga.deliver()
    saga.deliver()
    saga.redo("review")
    saga.deliver()
    assert (saga.state.steps["review"].status, saga.delay) == (StepStatus.WAITING, 100.0)


def test_redo_while_paused() -> None:
    """It begins with the resume."""
    saga = Driven(plan(step(retry=ONCE)))
    saga.deliver(Did.FAIL)
    saga.pause()
    saga.redo("charge")
    assert (saga.status, saga.delay) == (Status.RUNNING, PAUSE)


def test_an_old_log_of_these_kinds_folds() -> None:
    """A redo that was ignored changes nothing but the number of the last entry."""
    saga = Driven(plan(step(retry=ONCE), step("b", has_resolve=True)))
    saga.deliver(Did.FAIL)
    saga.redo("b")
    last: Entry = saga.log[-1]
    assert fold(saga.log[:-1]).steps == fold(saga.log).steps and last.data.ignored
    saga.retry_now()
    saga.deliver(Did.OK)
    saga.deliver(Did.DIE)
    saga.deliver(ask=result("b"))
    saga.must_be(Status.COMPLETED)
