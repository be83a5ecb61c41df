"""After a restore the log may know less than the world outside: what is still to be done is asked about first."""

from __future__ import annotations

import pytest

from sagas import machine
from sagas.events import Attempt, Cancel, Doubt, Kind, MarkNotDone, Succeeded
from sagas.plan import OnTimeout, StepPlan
from sagas.retry import Retry
from sagas.states import Status
from sagas.takeover import Choose, Memory, assess
from tests.support.machine_driver import COMPENSATE, Did, Driven, local, pivot, plan, result, step, undo, wait

ONCE = Retry(max_attempts=1)
RESTORED = Doubt(first_begun_at=999_990.0, actor="ann", reason="failover")


def test_each_step_that_is_still_to_come_is_asked_about() -> None:
    """Not the next one only: several may have been done in the history that was lost. Local steps went with it."""
    saga = Driven(plan(step("charge", has_resolve=True), local("note"), step("ship", has_resolve=True)))
    saga.apply(RESTORED)
    assert saga.steps_of(Kind.DOUBTED) == ["charge", "ship"]
    assert {entry.data.reason for entry in saga.last.entries} == {"failover"}
    saga.deliver(ask=result("found"))
    saga.deliver(Did.OK)
    saga.deliver(Did.OK, ask=Did.NOT_DONE)
    saga.must_be(Status.COMPLETED)


def test_what_the_dedupe_table_knows_comes_first() -> None:
    """What was reconciled settles the step."""
    saga = Driven(plan(step("charge"), step("ship")))
    saga.apply(RESTORED)
    saga.deliver(remembers=Memory(response=result("charge-7")))
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_one_attempt_may_have_been_used_up() -> None:
    """Never again unasked is kept over a restore; said once or twice is the same."""
    saga = Driven(plan(step("charge", retry=ONCE)))
    saga.apply(RESTORED)
    saga.apply(RESTORED)
    assert saga.state.steps["charge"].do.attempts == 1
    saga.deliver()
    saga.must_be(Status.PARKED)


def test_a_key_is_as_old_as_the_restored_data() -> None:
    """The time for which the other side knows it may have begun then."""
    saga = Driven(plan(step("charge", key_ttl=15.0)))
    saga.apply(RESTORED)
    saga.apply(Doubt(first_begun_at=999_995.0))
    assert saga.state.steps["charge"].do.first_begun_at == 999_990.0


def test_refused_is_no_proof_any_more() -> None:
    """An attempt that was lost with its history may have gone through."""
    saga = Driven(plan(step("charge", undo=undo(accepts_unknown=True), on_unknown=COMPENSATE)))
    saga.apply(RESTORED)
    saga.deliver(Did.REFUSE)
    assert saga.status is Status.COMPENSATING
    assert saga.state.steps["charge"].unsettled


def test_the_way_back_stays_open() -> None:
    """A cancel is granted although the pivot is in doubt as well: nothing says that it was come to."""
    saga = Driven(plan(step("charge", has_resolve=True), pivot("ship", has_resolve=True)))
    saga.apply(RESTORED)
    saga.apply(Cancel())
    saga.deliver(ask=Did.NOT_DONE)
    assert saga.status is Status.SETTLING, "what was in doubt is looked at once more"
    saga.deliver(ask=Did.NOT_DONE)
    saga.must_be(Status.CANCELLED)


def test_turning_back() -> None:
    """Compensations may have been begun as well; a parked saga and one that settles only note it."""
    saga = Driven(
        plan(step("a", undo=undo(has_resolve=True)), step("b", undo=undo()), step("c", retry=ONCE, undo=None))
    )
    saga.deliver(Did.OK)
    saga.deliver(Did.OK)
    saga.deliver(Did.REFUSE)
    assert saga.status is Status.COMPENSATING
    saga.apply(RESTORED)
    assert saga.steps_of(Kind.DOUBTED) == ["b", "a"]
    saga.deliver(Did.OK)
    saga.deliver(ask=result("it was undone"))
    saga.must_be(Status.COMPENSATED)
    saga.apply(RESTORED)
    assert not saga.last.entries, "what has ended has ended"


def test_parked_sagas_know_it_too() -> None:
    """What comes after the step that parked may have been done, by the word of an operator that was lost."""
    saga = Driven(plan(step("charge", retry=ONCE), step("ship", has_resolve=True)))
    saga.deliver(Did.FAIL)
    assert saga.status is Status.PARKED
    saga.apply(RESTORED)
    assert saga.state.steps["ship"].do.doubted
    assert saga.status is Status.PARKED


def test_settling_and_waiting() -> None:
    """Where nothing outside is to come, the log says at least that the database was restored."""
    saga = Driven(plan(step("charge", retry=ONCE, undo=undo(accepts_unknown=True), on_unknown=COMPENSATE)))
    saga.deliver(Did.FAIL)
    saga.deliver(Did.OK)
    assert saga.status is Status.SETTLING
    saga.apply(RESTORED)
    assert saga.steps_of(Kind.DOUBTED) == [""]
    saga = Driven(plan(wait()))
    saga.apply(RESTORED)
    assert saga.steps_of(Kind.DOUBTED) == [""]


# --- turning back before its turn ---


def turned_back_early(*later: StepPlan) -> Driven:
    """The step before those in doubt is refused."""
    saga = Driven(plan(local("reserve"), *later))
    saga.apply(RESTORED)
    saga.deliver(Did.REFUSE)
    return saga


def test_what_its_turn_never_came_for_is_asked_about() -> None:
    """The lost history charged; this one is refused before it comes to that. What is found is undone."""
    saga = turned_back_early(step("charge", has_resolve=True), step("ship", has_resolve=True))
    assert saga.state.failing
    saga.deliver(ask=result("charge"))
    saga.deliver(ask=Did.NOT_DONE)
    assert saga.status is Status.COMPENSATING
    saga.deliver(Did.OK)
    assert saga.steps_of(Kind.UNDO_DONE) == ["charge"]
    saga.deliver(ask=Did.NOT_DONE)
    saga.must_be(Status.COMPENSATED)
    assert saga.steps_of(Kind.SETTLE_DONE) == ["ship"], "its request may have landed late"


def test_what_the_dedupe_table_knows_is_undone_too() -> None:
    """Reconciled before the saga turned back: nobody is asked, and the charge is given back."""
    saga = turned_back_early(step("charge", has_resolve=True))
    saga.deliver(remembers=Memory(response=result("charge")))
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)
    assert saga.steps_of(Kind.UNDO_DONE) == ["charge"]


def test_what_nobody_can_say_is_undone_as_unknown() -> None:
    """Where its compensation can do that."""
    saga = turned_back_early(step("charge", undo=undo(accepts_unknown=True)))
    saga.deliver()
    saga.deliver(Did.OK)
    assert saga.steps_of(Kind.UNDO_DONE) == ["charge"]
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)


def test_nothing_is_done_in_order_to_undo_it() -> None:
    """Where the compensation needs a result, a person is to say; who retries instead is asked again."""
    saga = turned_back_early(step("charge"), step("ship", has_resolve=True))
    saga.deliver()
    saga.must_be(Status.PARKED)
    saga.retry_now()
    saga.deliver()
    saga.must_be(Status.PARKED)
    saga.apply(MarkNotDone("charge", "ann", "the bank has no such charge"))
    saga.deliver(ask=Did.NOT_DONE)
    assert saga.status is Status.SETTLING
    saga.deliver(ask=Did.NOT_DONE)
    saga.must_be(Status.COMPENSATED)


def test_asking_does_not_begin_it_either() -> None:
    """However often `resolve` cannot tell, and whoever dies over it."""
    saga = turned_back_early(step("charge", has_resolve=True))
    saga.deliver(ask=Did.DIE)
    for _ in range(3):
        saga.deliver(ask=Did.UNDECIDED)
    saga.must_be(Status.PARKED)


@pytest.mark.parametrize("how", ["cancel", "deadline", "wait"])
def test_however_it_comes_to_turn_back(how: str) -> None:
    """A cancel, its deadline, a signal that did not come."""
    charge = step("charge", has_resolve=True)
    first = wait("review", OnTimeout.COMPENSATE) if how == "wait" else local("reserve")
    saga = Driven(plan(first, charge), deadline=5.0 if how == "deadline" else None)
    saga.apply(RESTORED)
    if how == "cancel":
        saga.cancel()
    elif how == "deadline":
        saga.now += 10.0
    else:
        saga.deliver()
    saga.deliver()
    assert saga.state.failing
    saga.deliver(ask=result("charge"))
    saga.deliver(Did.OK)
    assert machine.finished(saga.state)
    assert saga.steps_of(Kind.UNDO_DONE) == ["charge"]


def test_what_cannot_be_undone_is_not_asked_about() -> None:
    """Neither the pivot nor a step without a compensation keeps a saga from turning back: `reconcile` names them."""
    saga = turned_back_early(step("note", undo=None), pivot("ship", has_resolve=True), step("tell", undo=None))
    saga.must_be(Status.COMPENSATED)


# --- conditions, keys, the pivot ---


def test_a_condition_is_not_looked_at_before_asking() -> None:
    """It may have been true in the lost history; only when that did nothing does it count."""
    conditional = step("charge", has_when=True, has_resolve=True)
    found, said_no = Driven(plan(conditional)), Driven(plan(conditional))
    for saga in (found, said_no):
        saga.apply(RESTORED)
    found.deliver(ask=result("charge"))
    found.must_be(Status.COMPLETED)
    action = assess(said_no.plan, said_no.state, attempt(said_no), not_done=True)
    assert isinstance(action, Choose)
    known = assess(said_no.plan, said_no.state, attempt(said_no), memory=Memory(response=result("charge")))
    assert isinstance(known, Succeeded)
    said_no.deliver(ask=Did.NOT_DONE, chooses=Did.SKIP)
    said_no.must_be(Status.COMPLETED)


@pytest.mark.parametrize("accepts", [True, False])
def test_a_conditional_step_in_doubt_is_not_just_withdrawn(accepts: bool) -> None:
    """Nor skipped, where nobody can be asked."""
    conditional = step("charge", has_when=True, undo=undo(accepts_unknown=accepts))
    cancelled, skipped = Driven(plan(conditional)), Driven(plan(conditional))
    for saga in (cancelled, skipped):
        saga.apply(RESTORED)
    skipped.deliver(chooses=Did.SKIP)
    skipped.must_be(Status.PARKED)
    cancelled.cancel()
    if accepts:
        cancelled.deliver()
        assert cancelled.status is Status.COMPENSATING
    else:
        cancelled.deliver(chooses=Did.SKIP)
        cancelled.must_be(Status.PARKED)


def test_a_key_is_as_good_as_new_when_nothing_happened_under_it() -> None:
    """However old the restored data are: a step that only may have been begun, and was not, is begun."""
    saga = Driven(plan(local("reserve"), step("charge", key_ttl=15.0, has_resolve=True)))
    saga.apply(RESTORED)
    saga.now += 100.0
    saga.deliver(Did.OK)
    saga.deliver(Did.OK, ask=Did.NOT_DONE)
    saga.must_be(Status.COMPLETED)


def test_a_cancel_beside_a_pivot_in_doubt() -> None:
    """It is granted when the pivot did not happen, also where that could not be said at once."""
    saga = Driven(plan(step("charge"), pivot("ship", has_resolve=True)))
    saga.deliver(Did.OK)
    saga.apply(RESTORED)
    saga.cancel()
    saga.deliver(ask=Did.UNDECIDED)
    saga.deliver(ask=Did.NOT_DONE)
    assert saga.status is Status.COMPENSATING
    saga.deliver(Did.OK)
    saga.must_be(Status.CANCELLED)


def test_a_pivot_in_doubt_that_happened() -> None:
    """It closes the way back, whatever was asked for."""
    saga = Driven(plan(step("charge"), pivot("ship", has_resolve=True)))
    saga.deliver(Did.OK)
    saga.apply(RESTORED)
    saga.cancel()
    saga.deliver(ask=result("ship"))
    saga.must_be(Status.COMPLETED)


def attempt(saga: Driven) -> Attempt:
    """The next delivery."""
    assert saga.row is not None
    return Attempt(step=saga.row.step, direction=saga.row.direction, now=saga.now)
