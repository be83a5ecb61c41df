"""Going forward: unknown outcomes, and the limits of trying again (claim protocol, rules 6 to 9)."""

from __future__ import annotations

import pytest

from sagas.events import Kind
from sagas.plan import StepPlan
from sagas.retry import Retry
from sagas.states import Status, StepStatus
from sagas.takeover import Argument, Memory
from tests.support.machine_driver import (
    ACCEPTS,
    COMPENSATE,
    Did,
    Driven,
    local,
    pivot,
    plan,
    result,
    step,
    undo,
)

FOUND = result("charge")


def test_steps_run_in_order_to_the_end() -> None:
    """Without trouble each step runs once."""
    saga = Driven(plan(local(), step(), pivot()))
    for _ in range(3):
        saga.deliver(Did.OK)
    assert saga.kinds == ["started", "step_done reserve", "step_done charge", "step_done ship", "completed"]


def test_failed_external_step_is_unknown() -> None:
    """An exception does not say "no": the outcome is stored as unknown, and marked in the dedupe table."""
    saga = Driven(plan(step()))
    saga.deliver(Did.FAIL)
    assert saga.state.steps["charge"].do.unknown
    assert [(mark.step, mark.state) for mark in saga.last.marks] == [("charge", "started")]
    assert saga.row is not None
    assert saga.row.failures == 1
    assert saga.delay == 1.0


def test_a_result_ends_the_doubt() -> None:
    """The same key brought an answer, so nothing is unknown any more and no undo has to be settled."""
    saga = Driven(plan(step()))
    saga.deliver(Did.FAIL)
    saga.deliver(Did.OK)
    charge = saga.state.steps["charge"]
    assert (saga.status, charge.do.unknown, charge.do.attempts) == (Status.COMPLETED, False, 2)


@pytest.mark.parametrize("died", [False, True])
def test_resolve_is_asked_before_the_retry(died: bool) -> None:
    """Rules 7 and 8: after an exception as after a death, `resolve` comes first; what it finds is the result."""
    saga = Driven(plan(step(has_resolve=True)))
    saga.deliver(Did.DIE if died else Did.FAIL)
    saga.deliver(ask=FOUND)
    assert (saga.status, saga.state.steps["charge"].do.attempts) == (Status.COMPLETED, 1)


def test_dedupe_table_is_read_before_resolve() -> None:
    """Rule 8: a late answer that the dedupe table holds is taken without asking anybody."""
    saga = Driven(plan(step(has_resolve=True)))
    saga.deliver(Did.DIE)
    saga.deliver(remembers=Memory(response=FOUND))
    assert (saga.status, saga.log[-2].data.source) == (Status.COMPLETED, "dedupe")


def test_not_done_is_retried_within_max_attempts() -> None:
    """After NOT_DONE the body runs again while attempts are left; then the saga turns back."""
    saga = Driven(plan(step(has_resolve=True, retry=Retry(max_attempts=2))))
    saga.deliver(Did.FAIL)
    saga.deliver(Did.FAIL, ask=Did.NOT_DONE)
    saga.deliver(ask=Did.NOT_DONE)
    assert saga.steps_of(Kind.STEP_NOT_DONE) == ["charge"]
    assert saga.kinds[-2:] == ["compensating charge", "settling"]


def test_not_done_is_not_retried_after_key_ttl() -> None:
    """No retry begins once the other side may have forgotten the key, however many attempts are left."""
    saga = Driven(plan(step(has_resolve=True, key_ttl=100.0)))
    saga.deliver(Did.FAIL)
    saga.now += 100.0
    saga.deliver(ask=Did.NOT_DONE)
    assert saga.steps_of(Kind.STEP_NOT_DONE) == ["charge"]


def test_key_ttl_counts_from_the_first_begin() -> None:
    """Neither a recorded failure, nor parking, nor an operator's retry makes the key any younger."""
    saga = Driven(plan(step(key_ttl=100.0, retry=Retry(max_attempts=1))))
    saga.deliver(Did.FAIL)
    saga.must_be(Status.PARKED)
    saga.now += 99.0
    saga.retry_now()
    saga.deliver(Did.FAIL)
    saga.now += 1.0
    saga.retry_now()
    saga.deliver()
    assert (saga.status, saga.state.steps["charge"].do.attempts) == (Status.PARKED, 2)


@pytest.mark.parametrize("ends", [Did.FAIL, Did.DIE])
def test_max_attempts_bounds_begun_bodies(ends: Did) -> None:
    """However the bodies ended: as often as that a body begins, and not once more."""
    saga = Driven(plan(step(retry=Retry(max_attempts=2), max_deliveries=9)))
    saga.deliver(ends)
    saga.deliver(ends)
    if ends is Did.DIE:
        saga.deliver()
    assert (saga.status, saga.state.steps["charge"].do.attempts) == (Status.PARKED, 2)
    assert saga.state.steps["charge"].do.unknown


def test_one_attempt_means_never_again_unasked() -> None:
    """`max_attempts=1`: the next body begins only when an operator says so."""
    saga = Driven(plan(step(retry=Retry(max_attempts=1))))
    saga.deliver(Did.DIE)
    saga.deliver()
    saga.must_be(Status.PARKED)
    saga.retry_now()
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_undecided_is_asked_again_then_the_step_is_retried() -> None:
    """`resolve` is asked as often as `Retry` says; cannot tell then means: retry under the same key."""
    saga = Driven(plan(step(has_resolve=True, retry=Retry(max_attempts=2))))
    saga.deliver(Did.FAIL)
    saga.deliver(ask=Did.UNDECIDED)
    assert saga.delay == 1.0
    saga.deliver(ask=Did.UNDECIDED)
    saga.deliver(Did.FAIL)
    saga.deliver(ask=Did.UNDECIDED)
    saga.deliver(ask=Did.UNDECIDED)
    assert (saga.status, saga.state.steps["charge"].do.attempts) == (Status.PARKED, 2)


def test_undecided_then_a_death_is_asked_about() -> None:
    """An earlier "cannot tell" says nothing of the attempt that died since: a take-over asks first."""
    saga = Driven(plan(step(has_resolve=True, retry=Retry(max_attempts=3))))
    saga.deliver(Did.FAIL)
    for _ in range(3):
        saga.deliver(ask=Did.UNDECIDED)
    saga.deliver(Did.DIE)
    saga.deliver(ask=FOUND)
    saga.must_be(Status.COMPLETED)


def test_a_step_that_kills_workers_parks() -> None:
    """Rule 6: crashes are counted apart from failures, also when the author would compensate the unknown."""
    saga = Driven(plan(step(max_deliveries=2, retry=Retry(max_attempts=9), on_unknown=COMPENSATE, undo=ACCEPTS)))
    saga.deliver(Did.DIE)
    saga.deliver(Did.DIE)
    saga.deliver()
    charge = saga.state.steps["charge"]
    assert (saga.status, charge.do.unknown, charge.do.failures) == (Status.PARKED, True, 0)
    assert saga.state.error == "2 workers died over it; its outcome is unknown"


def test_a_step_that_kills_workers_is_undone_when_cancelled() -> None:
    """Rule 6: at `max_deliveries` a cancelled saga compensates the step as unknown."""
    saga = Driven(plan(step(max_deliveries=1, has_resolve=True, undo=ACCEPTS)))
    saga.deliver(Did.DIE)
    saga.cancel()
    saga.deliver()
    assert saga.kinds[-2:] == ["step_unknown charge", "compensating charge"]


def test_a_local_step_that_dies_runs_again() -> None:
    """It was rolled back with its transaction, so nothing is unknown; `max_deliveries` still parks it."""
    saga = Driven(plan(local(max_deliveries=2, retry=Retry(max_attempts=1))))
    saga.deliver(Did.DIE)
    saga.deliver(Did.DIE)
    saga.deliver()
    assert (saga.status, saga.state.steps["reserve"].do.unknown) == (Status.PARKED, False)
    saga.retry_now()
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_a_local_step_that_fails_turns_back() -> None:
    """It certainly did nothing; what came before is undone, it is not."""
    saga = Driven(plan(local(), local("book", retry=Retry(max_attempts=2))))
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    saga.deliver(Did.FAIL)
    assert saga.steps_of(Kind.STEP_NOT_DONE) == ["book"]
    saga.deliver(Did.OK)
    assert saga.kinds[-2:] == ["undo_done reserve", "compensated"]


def test_unknown_parks_by_default() -> None:
    """`on_unknown=PARK`: a person decides, although the undo would accept UNKNOWN."""
    saga = Driven(plan(step(undo=ACCEPTS)))
    for _ in range(3):
        saga.deliver(Did.FAIL)
    assert (saga.status, saga.state.parked_from) == (Status.PARKED, Status.RUNNING)


def test_unknown_is_compensated_on_the_authors_word() -> None:
    """`on_unknown=COMPENSATE`: undone as unknown, and the key is closed to late attempts."""
    saga = Driven(plan(step(undo=ACCEPTS, on_unknown=COMPENSATE)))
    for _ in range(3):
        saga.deliver(Did.FAIL)
    assert ("charge", "closed") in [(mark.step, mark.state) for mark in saga.last.marks]
    ran = saga.deliver(Did.OK).ran
    assert ran is not None
    assert (ran.argument, ran.generation) == (Argument.UNKNOWN, 0)
    saga.must_be(Status.SETTLING)


def test_give_up_on_ends_the_retries() -> None:
    """One such error is enough, but what it left behind is still unknown."""
    saga = Driven(plan(step()))
    saga.deliver(Did.GIVE_UP)
    assert (saga.status, saga.state.steps["charge"].do.unknown) == (Status.PARKED, True)


def test_give_up_on_still_asks() -> None:
    """`resolve` may know that it happened after all."""
    saga = Driven(plan(step(has_resolve=True)))
    saga.deliver(Did.GIVE_UP)
    saga.deliver(ask=FOUND)
    saga.must_be(Status.COMPLETED)


def test_give_up_on_of_a_local_step_turns_back() -> None:
    """Nothing happened, and nothing is tried again."""
    saga = Driven(plan(local()))
    saga.deliver(Did.GIVE_UP)
    saga.must_be(Status.COMPENSATED)


# --- refused -----------------------------------------------------------------------------------------------------


def test_refused_turns_back() -> None:
    """This attempt did nothing and there was no other: nothing to undo here, the rest is undone."""
    saga = Driven(plan(local(), step()))
    saga.deliver(Did.OK)
    saga.deliver(Did.REFUSE)
    saga.deliver(Did.OK)
    assert saga.kinds[-4:] == ["step_not_done charge", "compensating charge", "undo_done reserve", "compensated"]


@pytest.mark.parametrize("before", [Did.FAIL, Did.DIE])
@pytest.mark.parametrize("undoing", [ACCEPTS, undo()], ids=["accepts", "needs result"])
def test_refused_after_unknown_is_unknown(before: Did, undoing: object) -> None:
    """Rule 7: the earlier attempt may have happened; undone as unknown where accepted, else parked."""
    saga = Driven(plan(step(undo=undoing)))
    saga.deliver(before)
    saga.deliver(Did.REFUSE)
    if undoing is ACCEPTS:
        assert saga.kinds[-2:] == ["step_unknown charge", "compensating charge"]
    else:
        saga.must_be(Status.PARKED)
    assert saga.state.steps["charge"].do.unknown


def test_refused_after_unknown_asks_but_does_not_retry() -> None:
    """`resolve` decides what became of the earlier attempt; no further body begins."""
    saga = Driven(plan(step(has_resolve=True, undo=ACCEPTS)))
    saga.deliver(Did.FAIL)
    saga.deliver(Did.REFUSE, ask=Did.NOT_DONE)
    saga.deliver(ask=Did.NOT_DONE)
    assert saga.steps_of(Kind.STEP_NOT_DONE) == ["charge"]
    saga.must_be(Status.COMPENSATING)


def test_refused_after_unknown_and_cannot_tell() -> None:
    """Asked to the end without an answer: undone as unknown."""
    saga = Driven(plan(step(has_resolve=True, undo=ACCEPTS, retry=Retry(max_attempts=2))))
    saga.deliver(Did.DIE)
    saga.deliver(Did.REFUSE, ask=Did.NOT_DONE)
    saga.deliver(ask=Did.UNDECIDED)
    saga.deliver(ask=Did.UNDECIDED)
    assert saga.kinds[-2:] == ["step_unknown charge", "compensating charge"]


# --- results that cannot be stored -------------------------------------------------------------------------------


def test_unstorable_parks_and_does_not_run_again_unasked() -> None:
    """It happened: no second charge, no blind undo, although the author would compensate the unknown."""
    saga = Driven(plan(step(undo=ACCEPTS, on_unknown=COMPENSATE)))
    saga.deliver(Did.UNSTORABLE)
    saga.must_be(Status.PARKED)
    saga.retry_now()
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_unstorable_is_asked_about_before_it_runs_again() -> None:
    """With `resolve` the operator's retry finds the result without a second body."""
    saga = Driven(plan(step(has_resolve=True)))
    saga.deliver(Did.UNSTORABLE)
    saga.retry_now()
    saga.deliver(ask=FOUND)
    assert (saga.status, saga.state.steps["charge"].do.attempts) == (Status.COMPLETED, 1)


# --- the pivot and after -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [Did.FAIL, Did.GIVE_UP, Did.DIE])
def test_unknown_pivot_is_never_undone(ends: Did) -> None:
    """Rule 9: asked about, retried, else parked, and nothing before it is undone."""
    saga = Driven(plan(step(undo=ACCEPTS), pivot(retry=Retry(max_attempts=1))))
    saga.deliver(Did.OK)
    saga.deliver(ends)
    if ends is Did.DIE:
        saga.deliver()
    saga.must_be(Status.PARKED)
    saga.cancel()
    assert (saga.status, saga.log[-1].data.ignored) == (Status.PARKED, True)
    saga.retry_now()
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_pivot_refused_after_unknown_parks() -> None:
    """The earlier attempt may have decided already."""
    saga = Driven(plan(step(undo=ACCEPTS), pivot()))
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    saga.deliver(Did.REFUSE)
    saga.must_be(Status.PARKED)


def test_pivot_not_done_parks_when_attempts_are_used_up() -> None:
    """A pivot that was ever unknown is not skipped on the word of `resolve`: its request may still land."""
    saga = Driven(plan(step(), pivot(has_resolve=True, retry=Retry(max_attempts=1))))
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    saga.deliver(ask=Did.NOT_DONE)
    saga.must_be(Status.PARKED)


def test_pivot_that_refuses_at_once_turns_back() -> None:
    """It certainly did not decide."""
    saga = Driven(plan(step(), pivot()))
    saga.deliver(Did.OK)
    saga.deliver(Did.REFUSE)
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)


@pytest.mark.parametrize("last", [step("tell", undo=None), local("tell", undo=None)], ids=["external", "local"])
@pytest.mark.parametrize("ends", [Did.REFUSE, Did.GIVE_UP, Did.FAIL])
def test_after_the_pivot_trouble_parks(last: StepPlan, ends: Did) -> None:
    """What follows the pivot is never turned back from; an operator's retry goes on with it."""
    saga = Driven(plan(step(), pivot(), last))
    saga.deliver(Did.OK)
    saga.deliver(Did.OK)
    for _ in range(3 if ends is Did.FAIL else 1):
        saga.deliver(ends)
    assert (saga.status, saga.state.parked_from) == (Status.PARKED, Status.RUNNING)
    saga.retry_now()
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPLETED)


def test_closed_key_is_not_run() -> None:
    """A key closed by compensation begins no attempt, whatever the row says."""
    saga = Driven(plan(step()))
    saga.deliver(remembers=Memory(closed=True))
    saga.must_be(Status.PARKED)


def test_every_park_keeps_what_is_unknown() -> None:
    """Rule 6: parked, resumed and parked again, the doubt stays until there is an answer."""
    saga = Driven(plan(step(retry=Retry(max_attempts=1))))
    saga.deliver(Did.DIE)
    saga.deliver()
    saga.retry_now()
    saga.deliver(Did.FAIL)
    saga.must_be(Status.PARKED)
    saga.retry_now()
    assert saga.state.steps["charge"].do.unknown
    saga.deliver(Did.REFUSE)
    assert (saga.status, saga.state.steps["charge"].status) == (Status.PARKED, StepStatus.PENDING)


def test_entries_say_what_happened() -> None:
    """An entry names its attempt and carries the error, so that the log alone explains the saga."""
    saga = Driven(plan(step()))
    saga.deliver(Did.DIE)
    saga.deliver(Did.FAIL)
    failed = saga.log[-1]
    assert (failed.kind, failed.step, failed.attempt, failed.data.deliveries) == (Kind.STEP_FAILED, "charge", 2, 2)
    assert failed.data.error is not None
    assert failed.data.first_begun_at == saga.state.steps["charge"].do.first_begun_at


@pytest.mark.parametrize(
    ("failing", "status"),
    [(step(), Status.PARKED), (local(), Status.COMPENSATED), (step(on_unknown=COMPENSATE, undo=ACCEPTS), None)],
)
def test_only_an_attempt_that_another_follows_says_when(failing: StepPlan, status: Status | None) -> None:
    """The last one is followed by parking or by turning back, and by no attempt: it announces none."""
    saga = Driven(plan(failing))
    for _ in range(3):
        saga.deliver(Did.FAIL)
    assert [each.data.retry_in for each in saga.log if each.kind is Kind.STEP_FAILED] == [1.0, 2.0, None]
    assert status in (None, saga.status)


def test_a_question_that_follows_is_announced() -> None:
    """After the last attempt `resolve` is asked, and asked again; after its last word nothing is announced."""
    saga = Driven(plan(step(has_resolve=True, retry=Retry(max_attempts=1))))
    saga.deliver(Did.FAIL)
    saga.deliver(ask=Did.UNDECIDED)
    assert (saga.status, [each.data.retry_in for each in saga.log[1:]]) == (Status.PARKED, [1.0, None, None])


def test_a_compensation_that_is_given_up_announces_nothing() -> None:
    """The same on the way back."""
    saga = Driven(plan(step(undo=undo(retry=Retry(max_attempts=2))), step("other")))
    saga.deliver(Did.OK)
    saga.deliver(Did.REFUSE)
    saga.deliver(Did.FAIL)
    saga.deliver(Did.FAIL)
    assert [each.data.retry_in for each in saga.log if each.kind is Kind.UNDO_FAILED] == [1.0, None]
    assert saga.status is Status.PARKED
