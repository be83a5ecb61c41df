"""Turning back: compensation and settling (claim protocol, rules 8, 10 and 11)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from sagas.events import Kind
from sagas.retry import Retry
from sagas.states import Status, StepStatus
from sagas.takeover import Argument, Memory
from tests.support.machine_driver import (
    ACCEPTS,
    COMPENSATE,
    SETTLE_AFTER,
    Did,
    Driven,
    local,
    plan,
    result,
    step,
    undo,
)

FOUND = result("charge")
LATE = Raw(b'"late-1"')
ONCE = Retry(max_attempts=1)


def turned_back(**options: Any) -> Driven:
    """A charge that was made, and a second step that was refused."""
    saga = Driven(plan(step(**options), step("book")))
    saga.deliver(Did.OK)
    saga.deliver(Did.REFUSE)
    saga.must_be(Status.COMPENSATING)
    return saga


def undone_as_unknown(**options: Any) -> Driven:
    """A charge of which nobody knows, compensated with UNKNOWN and not yet settled."""
    given: dict[str, Any] = {"retry": ONCE, "on_unknown": COMPENSATE, "undo": ACCEPTS, **options}
    saga = Driven(plan(step(**given)))
    saga.deliver(Did.GIVE_UP)
    for _ in range(given["retry"].max_attempts if given.get("has_resolve") else 0):
        saga.deliver(ask=Did.UNDECIDED)
    saga.deliver(Did.OK)
    saga.must_be(Status.SETTLING)
    return saga


def test_undo_is_the_reverse_of_completion() -> None:
    """Each step that was done is undone, last done first, given its result."""
    saga = Driven(plan(local("a"), step("b"), local("c"), step("d")))
    for _ in "abc":
        saga.deliver(Did.OK)
    saga.deliver(Did.REFUSE)
    arguments = [saga.deliver(Did.OK).ran for _ in "cba"]
    assert saga.steps_of(Kind.UNDO_DONE) == ["c", "b", "a"]
    assert all(ran is not None and ran.argument is Argument.RESULT for ran in arguments)
    saga.must_be(Status.COMPENSATED)


def test_steps_without_compensation_are_skipped() -> None:
    """`compensate=None` says that there is nothing to undo."""
    saga = Driven(plan(local("a"), step("b", undo=None), step("c")))
    saga.deliver(Did.OK)
    saga.deliver(Did.OK)
    saga.deliver(Did.REFUSE)
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["a"], Status.COMPENSATED)


def test_unknown_step_without_compensation_needs_no_settling() -> None:
    """Nothing to undo is nothing to settle, whatever became of it."""
    saga = Driven(plan(step(undo=None, on_unknown=COMPENSATE, retry=ONCE)))
    saga.deliver(Did.FAIL)
    assert (saga.status, saga.state.steps["charge"].status) == (Status.COMPENSATED, StepStatus.UNKNOWN)


def test_the_key_is_closed_when_undo_begins() -> None:
    """No attempt may begin once compensation has: the guard is told with the same decision, once, also after a park."""
    saga = turned_back(undo=undo(retry=ONCE))
    assert [(mark.step, mark.state) for mark in saga.last.marks] == [("charge", "closed")]


# --- compensations that fail -------------------------------------------------------------------------------------


def test_failing_undo_parks_and_resumes_at_that_undo_only() -> None:
    """Compensation cannot be skipped; what was undone already is not undone again."""
    saga = Driven(plan(local("a"), step("b"), local("c"), step("d")))
    for _ in "abc":
        saga.deliver(Did.OK)
    saga.deliver(Did.REFUSE)
    saga.deliver(Did.OK)
    for _ in range(3):
        saga.deliver(Did.FAIL)
    assert (saga.status, saga.state.parked_from) == (Status.PARKED, Status.COMPENSATING)
    saga.retry_now()
    assert saga.row is not None
    assert saga.row.step == "b"
    saga.deliver(Did.FAIL)
    saga.deliver(Did.OK)
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["c", "b", "a"], Status.COMPENSATED)


@pytest.mark.parametrize("ends", [Did.REFUSE, Did.GIVE_UP])
def test_undo_that_refuses_parks_at_once(ends: Did) -> None:
    """A compensation has no "no": a person has to look."""
    saga = turned_back()
    saga.deliver(ends)
    saga.must_be(Status.PARKED)
    saga.retry_now()
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)


def test_undo_that_kills_workers_parks() -> None:
    """Deaths are bounded by `max_deliveries` here too."""
    saga = turned_back(undo=undo(retry=Retry(max_attempts=9)))
    for _ in range(3):
        saga.deliver(Did.DIE)
    saga.deliver()
    assert (saga.status, saga.state.error) == (Status.PARKED, "3 workers died over it")


def test_undo_attempts_are_counted_apart() -> None:
    """Attempts of the step do not use up those of its compensation."""
    saga = Driven(plan(step(), step("book")))
    saga.deliver(Did.FAIL)
    saga.deliver(Did.FAIL)
    saga.deliver(Did.OK)
    saga.deliver(Did.REFUSE)
    saga.deliver(Did.FAIL)
    saga.deliver(Did.FAIL)
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)


def test_undo_asks_its_own_resolve_before_the_retry() -> None:
    """A compensation may have happened too; found out without a body, it counts none."""
    saga = turned_back(undo=undo(has_resolve=True))
    saga.deliver(Did.DIE)
    saga.deliver(ask=Raw(b"null"))
    assert (saga.status, saga.state.steps["charge"].undo.attempts) == (Status.COMPENSATED, 1)


def test_undo_refused_after_a_death_is_asked_about() -> None:
    """Rule 6: the park remembers that the attempt that died may have paid the money back."""
    saga = turned_back(undo=undo(has_resolve=True))
    saga.deliver(Did.DIE)
    saga.deliver(Did.REFUSE, ask=Did.NOT_DONE)
    saga.must_be(Status.PARKED)
    saga.retry_now()
    saga.deliver(ask=Raw(b"null"))
    saga.must_be(Status.COMPENSATED)


def test_undo_not_done_is_retried_then_parks() -> None:
    """NOT_DONE allows another attempt within the limits, as going forward."""
    saga = turned_back(undo=undo(has_resolve=True, retry=Retry(max_attempts=2)))
    saga.deliver(Did.FAIL)
    saga.deliver(Did.FAIL, ask=Did.NOT_DONE)
    saga.deliver(ask=Did.NOT_DONE)
    saga.must_be(Status.PARKED)


def test_undo_undecided_then_retried_then_parks() -> None:
    """Asked as often as the compensation's `Retry` says, then tried again, then a person."""
    saga = turned_back(undo=undo(has_resolve=True, retry=Retry(max_attempts=2)))
    saga.deliver(Did.FAIL)
    saga.deliver(ask=Did.UNDECIDED)
    saga.deliver(ask=Did.UNDECIDED)
    saga.deliver(Did.FAIL)
    saga.deliver(ask=Did.UNDECIDED)
    saga.deliver(ask=Did.UNDECIDED)
    saga.must_be(Status.PARKED)


def test_undo_without_attempts_left_parks() -> None:
    """A death used up the only attempt and nobody can be asked."""
    saga = turned_back(undo=undo(retry=ONCE))
    saga.deliver(Did.DIE)
    saga.deliver()
    saga.must_be(Status.PARKED)


def test_undo_remembered_by_the_dedupe_table() -> None:
    """A late answer to the compensation is taken; the compensation is not run again."""
    saga = turned_back()
    saga.deliver(Did.DIE)
    saga.deliver(remembers=Memory(response=Raw(b"null")))
    assert (saga.status, saga.state.steps["charge"].undo.attempts) == (Status.COMPENSATED, 1)


# --- tombstones and settling -------------------------------------------------------------------------------------


def test_not_done_is_still_undone_where_unknown_is_accepted() -> None:
    """Rule 10: a compensation that can plants a tombstone for the key; rule 11: and the step is settled."""
    saga = Driven(plan(step(has_resolve=True, retry=ONCE, undo=ACCEPTS)))
    saga.deliver(Did.FAIL)
    saga.deliver(ask=Did.NOT_DONE)
    ran = saga.deliver(Did.OK).ran
    assert ran is not None
    assert ran.argument is Argument.UNKNOWN
    saga.must_be(Status.SETTLING)
    saga.deliver(ask=Did.NOT_DONE)
    saga.must_be(Status.COMPENSATED)


def test_not_done_is_settled_where_a_result_is_needed() -> None:
    """No undo without a result, but a late request is found when settling and undone with what `resolve` says."""
    saga = Driven(plan(step(has_resolve=True, retry=ONCE)))
    saga.deliver(Did.FAIL)
    saga.deliver(ask=Did.NOT_DONE)
    assert (saga.status, saga.delay) == (Status.SETTLING, SETTLE_AFTER)
    ran = saga.deliver(Did.OK, ask=FOUND).ran
    assert ran is not None
    assert (ran.argument, ran.generation) == (FOUND, 1)
    saga.must_be(Status.COMPENSATED)


def test_settling_waits_and_asks_resolve() -> None:
    """Rule 11: after `settle_after` seconds, before the saga counts as compensated."""
    saga = undone_as_unknown(has_resolve=True)
    assert saga.delay == SETTLE_AFTER
    saga.deliver(ask=Did.NOT_DONE)
    assert saga.kinds[-2:] == ["settle_done charge", "compensated"]


def test_settling_undoes_what_resolve_finds() -> None:
    """A request that landed late is undone under a new generation of the key."""
    saga = undone_as_unknown(has_resolve=True)
    ran = saga.deliver(Did.OK, ask=FOUND).ran
    assert ran is not None
    assert (ran.argument, ran.generation) == (FOUND, 1)
    saga.must_be(Status.COMPENSATED)


def test_settling_without_resolve_compensates_again() -> None:
    """Rule 11: with UNKNOWN, under a new generation, and again under the same one until it succeeds."""
    saga = undone_as_unknown()
    for ends in (Did.FAIL, Did.DIE, Did.OK):
        ran = saga.deliver(ends).ran
        assert ran is not None
        assert (ran.argument, ran.generation) == (Argument.UNKNOWN, 1)
    saga.must_be(Status.COMPENSATED)


@pytest.mark.parametrize("has_resolve", [False, True])
def test_settling_uses_a_late_response(has_resolve: bool) -> None:
    """Rule 8: what the dedupe table learned meanwhile is undone as a result, without asking."""
    saga = undone_as_unknown(has_resolve=has_resolve)
    ran = saga.deliver(Did.OK, remembers=Memory(closed=True, response=LATE)).ran
    assert ran is not None
    assert (ran.argument, ran.generation) == (LATE, 1)
    saga.must_be(Status.COMPENSATED)


def test_settling_that_cannot_tell_parks() -> None:
    """Asked by the step's `Retry`; an operator's retry asks anew."""
    saga = undone_as_unknown(has_resolve=True, retry=Retry(max_attempts=2), undo=ACCEPTS, max_deliveries=1)
    saga.deliver(ask=Did.UNDECIDED)
    saga.deliver(ask=Did.UNDECIDED)
    assert (saga.status, saga.state.parked_from) == (Status.PARKED, Status.SETTLING)
    saga.retry_now()
    saga.deliver(ask=Did.NOT_DONE)
    saga.must_be(Status.COMPENSATED)


def test_settling_may_ask_when_no_compensation_may_begin() -> None:
    """Attempts bound bodies, not questions: a death while asking uses up nothing that is needed."""
    saga = undone_as_unknown(has_resolve=True, undo=undo(accepts_unknown=True, retry=ONCE))
    saga.deliver(ask=Did.DIE)
    saga.deliver(ask=Did.NOT_DONE)
    saga.must_be(Status.COMPENSATED)


def test_settling_that_fails_parks() -> None:
    """Found, and cannot be undone: a person."""
    for ends in (Did.FAIL, Did.REFUSE, Did.GIVE_UP):
        saga = undone_as_unknown(undo=undo(accepts_unknown=True, retry=ONCE))
        saga.deliver(ends)
        assert (saga.status, saga.state.parked_from) == (Status.PARKED, Status.SETTLING)


def test_settling_that_kills_workers_parks() -> None:
    """No saga is settled for ever."""
    saga = undone_as_unknown(undo=undo(accepts_unknown=True, retry=Retry(max_attempts=9)))
    for _ in range(3):
        saga.deliver(Did.DIE)
    saga.deliver()
    saga.must_be(Status.PARKED)


def test_settling_that_finds_what_cannot_be_stored_parks() -> None:
    """`resolve` found something: neither ignored nor asked about for ever."""
    saga = undone_as_unknown(has_resolve=True)
    saga.deliver(ask=Did.UNSTORABLE)
    assert (saga.status, saga.state.parked_from) == (Status.PARKED, Status.SETTLING)


def test_a_step_that_was_known_in_the_end_is_not_settled() -> None:
    """Only what was undone without knowing is looked at again."""
    saga = turned_back()
    saga.deliver(Did.OK)
    assert saga.kinds[-2:] == ["undo_done charge", "compensated"]
