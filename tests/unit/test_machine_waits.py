"""Waits, sleeps and signals: nothing that was sent is lost, and only the stored time ends a wait."""

from __future__ import annotations

import pytest
from msgspec import Raw

from sagas.events import Answer, Attempt, Facts, Kind, RetryNow, Signal, TimedOut, Waits
from sagas.machine import decide, rows
from sagas.machine.look import FOREVER
from sagas.plan import OnTimeout
from sagas.retry import Retry
from sagas.states import Status, StepStatus
from tests.support.machine_driver import DO, Did, Driven, Script, local, pivot, plan, sleep, step, undo, wait

ONCE = Retry(max_attempts=1)


def value_of(saga: Driven, name: str = "review") -> Raw:
    """The signal that the result of a wait refers to."""
    seq = saga.state.steps[name].result
    assert seq is not None
    facts: Facts = saga.log[seq].data
    assert isinstance(facts.result, Raw)
    return facts.result


def waiting(on_timeout: OnTimeout = OnTimeout.PARK) -> Driven:
    """A saga that charged and waits for a review of 100 seconds."""
    saga = Driven(plan(step(), wait(on_timeout=on_timeout), local("ship", undo=None)))
    saga.deliver(Did.OK)
    saga.deliver()
    assert (saga.state.steps["review"].status, saga.delay) == (StepStatus.WAITING, 100.0)
    return saga


# --- a signal that comes early, late, often ----------------------------------------------------------------------


def test_a_signal_before_its_wait_is_taken_without_a_begin() -> None:
    """The decision that reaches the wait takes it: no row for it, no delivery, nothing to miss."""
    saga = Driven(plan(step(), wait(), local("ship", undo=None)))
    saga.signal()
    assert (saga.last.rows, saga.last.wake, saga.state.steps["review"].signals) == ((), False, (1,))
    saga.deliver(Did.OK)
    assert saga.kinds[-2:] == ["step_done charge", "step_done review"]
    assert (saga.last.rows[0].step, saga.last.rows[0].delay) == ("ship", 0.0)
    assert (value_of(saga), saga.state.steps["review"].signals) == (Raw(b'"yes"'), ())


def test_a_signal_before_the_first_step_that_is_a_wait() -> None:
    """It is next from the start; the signal completes the saga, whose sleeping row goes with it."""
    saga = Driven(plan(wait()))
    saga.signal()
    assert (saga.kinds[-2:], saga.status, saga.row) == (["step_done review", "completed"], Status.COMPLETED, None)


def test_a_signal_ends_the_wait_and_brings_the_next_row() -> None:
    """The row of the wait goes, unless somebody holds it; that of the next step comes with the same decision."""
    saga = waiting()
    saga.signal()
    assert [(row.step, row.delay) for row in saga.last.rows] == [("ship", 0.0)]
    assert [work.step for work in saga.last.surplus] == ["review"]
    assert saga.row is not None
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_signals_are_taken_in_order_one_for_each_wait() -> None:
    """Each wait has its own queue; the first that came is taken, the next stays for a wait that begins anew."""
    saga = Driven(plan(step(undo=None), wait("first"), wait("second"), local("ship", retry=ONCE, undo=None), pivot()))
    for name, value in (("second", b"20"), ("first", b"1"), ("first", b"2"), ("second", b"21")):
        saga.signal(name, value)
    saga.deliver(Did.OK)
    assert [value_of(saga, name) for name in ("first", "second")] == [Raw(b"1"), Raw(b"20")]
    assert [saga.state.steps[name].signals for name in ("first", "second")] == [(3,), (4,)]


def test_a_signal_never_makes_a_held_row_due() -> None:
    """A request owns no row where there is one: it can only wake what nobody holds."""
    saga = Driven(plan(step(), wait()))
    for event in (Signal("review", Raw(b"1")), Signal("charge", Raw(b"1")), Signal("unheard of", Raw(b"1"))):
        assert decide(saga.plan, saga.state, event).rows == ()
    saga.deliver(Did.OK, meanwhile=saga.signal)
    saga.must_be(Status.COMPLETED)


def test_a_signal_while_whoever_came_to_the_wait_holds_its_row() -> None:
    """It is taken at once; the answer "it waits" is late then, and leaves no row behind that would sleep."""
    saga = Driven(plan(wait(), local("ship", undo=None)))
    saga.deliver(meanwhile=saga.signal)
    assert saga.kinds[1:] == ["signalled review", "step_done review"]
    assert saga.row is not None
    assert (saga.row.step, saga.delay) == ("ship", 0.0)


def test_a_signal_wins_against_a_timeout_that_is_being_recorded() -> None:
    """Both happened; whichever is recorded first holds, and the other changes nothing."""
    saga = waiting(OnTimeout.COMPENSATE)
    a = Attempt(step="review", direction=DO, now=saga.now + 100)
    saga.signal()
    decision = saga.apply(TimedOut(a))
    assert (decision.entries, decision.rows[0].step, saga.status) == ((), "ship", Status.RUNNING)


def test_what_nobody_waits_for_is_logged_and_ignored() -> None:
    """A step with a body, a sleep, and a name that is not known."""
    saga = Driven(plan(step(), sleep()))
    for name in ("charge", "pause", "unheard of"):
        saga.signal(name)
        assert (saga.log[-1].kind, saga.log[-1].data.ignored, saga.last.wake) == (Kind.SIGNALLED, True, False)
        assert not saga.state.steps


def test_a_signal_to_a_saga_that_turns_back_is_ignored() -> None:
    """Undoing, settling, and parked on the way back: nothing will take it, and the log says who sent it."""
    saga = Driven(plan(step(has_resolve=True, undo=undo(accepts_unknown=True, retry=ONCE), retry=ONCE), wait()))
    saga.deliver(Did.FAIL)
    saga.deliver(ask=Did.NOT_DONE)
    for status, delivery in ((Status.COMPENSATING, Did.FAIL), (Status.PARKED, None), (Status.SETTLING, None)):
        saga.must_be(status)
        saga.signal()
        assert (saga.log[-1].data.ignored, saga.log[-1].data.actor, saga.status) == (True, "reviewer", status)
        if delivery:
            saga.deliver(delivery)
        elif status is Status.PARKED:
            saga.retry_now()
            saga.deliver(Did.OK)


# --- the time ----------------------------------------------------------------------------------------------------


def test_the_stored_time_ends_a_sleep() -> None:
    """Woken early, by an operator or a signal for something else, it sleeps on for what is left."""
    saga = Driven(plan(sleep(), local("ship", undo=None)))
    saga.deliver()
    saga.now += 40
    saga.retry_now()
    assert saga.delay == 0
    saga.deliver()
    assert (saga.state.steps["pause"].status, saga.delay) == (StepStatus.WAITING, 60.0)
    saga.deliver()
    assert saga.kinds[-1] == "step_done pause"
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


@pytest.mark.parametrize("on_timeout", OnTimeout)
def test_a_timeout_is_decided_by_the_stored_time(on_timeout: OnTimeout) -> None:
    """Not by when the row is due: claims and leases overwrite that."""
    saga = waiting(on_timeout)
    saga.due = saga.now
    saga.deliver()
    assert (saga.state.steps["review"].status, saga.delay) == (StepStatus.WAITING, 100.0)
    saga.now, saga.due = saga.now + 100.0, 0.0
    saga.deliver()
    wanted = {"park": Status.PARKED, "compensate": Status.COMPENSATING, "skip": Status.RUNNING}
    saga.must_be(wanted[on_timeout])


def test_a_wait_without_end() -> None:
    """It is looked at every ten years."""
    saga = Driven(plan(wait()))
    saga.deliver(waits=None)
    assert (saga.delay, saga.state.steps["review"].until) == (FOREVER, None)
    saga.deliver()
    assert (saga.delay, saga.status) == (FOREVER, Status.RUNNING)
    assert rows(saga.plan, saga.state)[0].delay == 0, "where the time is not known it is looked at at once"


# --- on_timeout --------------------------------------------------------------------------------------------------


def test_on_timeout_compensate() -> None:
    """The saga turns back; the wait itself has nothing to undo."""
    saga = waiting(OnTimeout.COMPENSATE)
    saga.deliver()
    assert saga.kinds[-2:] == ["step_not_done review", "compensating review"]
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["charge"], Status.COMPENSATED)


def test_on_timeout_skip() -> None:
    """The saga goes on, and what comes later is kept in the log and never taken."""
    saga = waiting(OnTimeout.SKIP)
    saga.deliver()
    assert saga.state.steps["review"].status is StepStatus.SKIPPED
    saga.signal()
    saga.deliver(Did.OK)
    assert (saga.status, saga.steps_of(Kind.STEP_DONE)) == (Status.COMPLETED, ["charge", "ship"])


def test_on_timeout_park_and_a_retry_waits_anew() -> None:
    """A person decides: the retry is a wait of full length."""
    saga = waiting()
    saga.deliver()
    assert (saga.status, saga.state.error) == (Status.PARKED, "no signal came in time")
    saga.retry_now()
    saga.deliver()
    assert (saga.state.steps["review"].status, saga.delay) == (StepStatus.WAITING, 100.0)


def test_a_signal_revives_what_parked_for_its_lack() -> None:
    """The person who was late needs nobody else."""
    saga = waiting()
    saga.deliver()
    saga.signal()
    assert (saga.status, saga.last.rows[0].step) == (Status.RUNNING, "ship")
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_a_signal_to_a_saga_parked_over_something_else_is_kept() -> None:
    """It stays parked; the signal is taken when its wait is reached."""
    saga = Driven(plan(step(retry=ONCE), wait()))
    saga.deliver(Did.FAIL)
    saga.signal()
    saga.must_be(Status.PARKED)
    saga.retry_now()
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


@pytest.mark.parametrize("on_timeout", [OnTimeout.PARK, OnTimeout.COMPENSATE])
def test_a_timeout_after_the_pivot_parks(on_timeout: OnTimeout) -> None:
    """There is no way back from there; a definition that asks for one is refused, and the machine would park."""
    saga = Driven(plan(pivot(), wait(on_timeout=on_timeout)))
    saga.deliver(Did.OK)
    saga.deliver()
    saga.deliver()
    saga.must_be(Status.PARKED)
    saga.signal()
    saga.must_be(Status.COMPLETED)


def test_skip_of_the_last_wait_completes() -> None:
    """Also after the pivot."""
    saga = Driven(plan(pivot(), wait(on_timeout=OnTimeout.SKIP)))
    saga.deliver(Did.OK)
    saga.deliver()
    saga.deliver()
    saga.must_be(Status.COMPLETED)


# --- cancel ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [False, True], ids=["waits", "with a signal queued"])
def test_cancel_while_waiting_compensates(early: bool) -> None:
    """At once; what was done is undone, and a signal that comes in between changes nothing about that."""
    saga = waiting()
    saga.cancel()
    assert (saga.last.wake, saga.delay) == (True, 0.0)
    if early:
        saga.signal()
    saga.deliver()
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["charge"], Status.CANCELLED)


def test_cancel_while_whoever_came_to_the_wait_holds_its_row() -> None:
    """A held row is not woken, so the one who holds it may not put it to sleep."""
    saga = Driven(plan(step(), wait()))
    saga.deliver(Did.OK)
    saga.deliver(meanwhile=saga.cancel, waits=None)
    assert (saga.kinds[-1], saga.delay) == ("waiting review", 0.0)
    saga.deliver()
    saga.must_be(Status.COMPENSATING)


def test_cancel_while_a_wait_that_was_woken_early_is_put_back() -> None:
    """As above: the row goes back with the fresh state, and is due."""
    saga = waiting()
    saga.due = saga.now
    saga.held = True
    saga.cancel()
    saga.held = False
    assert rows(saga.plan, saga.state, now=saga.now)[0].delay == 0


@pytest.mark.parametrize("on_timeout", OnTimeout)
def test_cancel_while_a_timeout_is_being_recorded(on_timeout: OnTimeout) -> None:
    """The cancel was granted, so the saga turns back: it neither parks nor goes on to its end."""
    saga = Driven(plan(step(), wait(on_timeout=on_timeout)))
    saga.deliver(Did.OK)
    saga.deliver()
    saga.cancel()
    saga.apply(TimedOut(Attempt(step="review", direction=DO, now=saga.now + 100)))
    saga.deliver(Did.OK)
    assert (saga.steps_of(Kind.UNDO_DONE), saga.status) == (["charge"], Status.CANCELLED)


def test_cancel_of_a_saga_parked_for_a_signal() -> None:
    """It turns back; the wait is nothing that would have to be found out about."""
    saga = waiting()
    saga.deliver()
    saga.must_be(Status.PARKED)
    saga.cancel()
    saga.deliver()
    saga.deliver(Did.OK)
    saga.must_be(Status.CANCELLED)


def test_cancel_of_a_wait_after_the_pivot_is_ignored() -> None:
    """It waits on, for as long as before."""
    saga = Driven(plan(pivot(), wait()))
    saga.deliver(Did.OK)
    saga.deliver()
    saga.cancel()
    assert (saga.log[-1].data.ignored, saga.delay) == (True, 100.0)
    saga.signal()
    saga.must_be(Status.COMPLETED)


# --- faults ------------------------------------------------------------------------------------------------------


def test_a_wait_that_cannot_say_until_when() -> None:
    """It is tried like a local step, then the saga turns back; nothing is in doubt."""
    saga = Driven(plan(step(), sleep()))
    saga.deliver(Did.OK)
    for _ in range(Retry().max_attempts):
        saga.deliver(waits=Did.FAIL)
    assert (saga.kinds[-1], saga.state.steps["pause"].do.unknown) == ("compensating pause", False)
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)


def test_workers_that_die_over_a_wait_park_it() -> None:
    """Nothing is in doubt, and a signal still ends it."""
    saga = Driven(plan(wait()))
    saga.deliver(waits=Did.DIE)
    saga.deliver(waits=Did.DIE)
    saga.deliver()
    assert (saga.status, saga.state.steps["review"].do.unknown) == (Status.PARKED, False)
    saga.signal()
    saga.must_be(Status.COMPLETED)


@pytest.mark.parametrize("event", [Waits, TimedOut])
def test_answers_about_a_wait_that_is_over_change_nothing(event: type[Waits | TimedOut]) -> None:
    """They are late."""
    saga = waiting()
    saga.signal()
    a = Attempt(step="review", direction=DO)
    late: Answer = Waits(a, 1.0) if event is Waits else TimedOut(a)
    assert saga.apply(late).entries == ()
    assert saga.deliver_in(Script(Did.OK)) is not None
    saga.must_be(Status.COMPLETED)


def test_retry_now_of_a_wait_only_wakes_it() -> None:
    """The end of the wait stays what it was."""
    saga = waiting()
    before = saga.state.steps["review"]
    saga.apply(RetryNow())
    assert (saga.state.steps["review"], saga.last.wake) == (before, True)
