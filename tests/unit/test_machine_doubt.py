"""After a restore the log may know less than the world outside: what is still to be done is asked about first."""

from __future__ import annotations

from sagas.events import Cancel, Doubt, Kind
from sagas.retry import Retry
from sagas.states import Status
from sagas.takeover import Memory
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
