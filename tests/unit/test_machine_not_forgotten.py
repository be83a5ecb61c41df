"""What has happened, or may have, is not forgotten on the way: beside steps that parked, after a restore, after an
abort, and with children that are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from sagas import machine
from sagas.events import (
    Abort,
    Attempt,
    Blocked,
    Cancel,
    Children,
    Direction,
    Doubt,
    Event,
    Failed,
    Kind,
    LateAnswer,
    Looks,
    MarkDone,
    MarkNotDone,
    Recalled,
    RetryNow,
    Signal,
    Succeeded,
    TimedOut,
    Waits,
)
from sagas.plan import OnTimeout, Plan, StepPlan
from sagas.retry import Retry
from sagas.states import State, Status, StepStatus
from tests.support.machine_checks import check_decision
from tests.support.machine_driver import ERROR, begot, child, local, pivot, plan, started, step, wait

ONCE = Retry(max_attempts=1)
PARKS = replace(step("charge", undo=None, retry=ONCE), after=())
PROBLEM = "its child has no result of step 'take'"


def at(name: str, direction: Direction = Direction.DO, **more: Any) -> Attempt:
    return Attempt(**{"step": name, "direction": direction, "now": 1.0, **more})


def told(of: Plan, *events: Event, deadline: float | None = None) -> machine.Decision:
    """The last decision after all of this."""
    decision = started(of, deadline)
    for event in events:
        before, decision = decision.state, machine.decide(of, decision.state, event)
        check_decision(of, before, event, decision)
    return decision


def beside(each: StepPlan) -> Plan:
    """A step beside one that parks when it fails."""
    return plan(replace(each, after=()), PARKS)


def stood(state: State, **counts: Any) -> Children:
    known = state.steps["kid"]
    return Children(step="kid", round=known.do.attempts, started=known.started, now=1.0, **counts)


def test_who_goes_on_wakes_what_has_slept_beside_it() -> None:
    """While a step is parked the one beside it begins no more of its children, and nobody looks at them either."""
    both = beside(child("kid"))
    before = told(both, begot(at("kid"), count=1, total=2), Failed(at("charge"), ERROR))
    assert before.state.status is Status.PARKED
    looked = machine.decide(both, before.state, stood(before.state, completed=1, count=1))
    assert looked.calls == () and not looked.wake
    assert machine.decide(both, looked.state, RetryNow()).wake
    assert machine.decide(both, looked.state, MarkDone("charge", Raw(b"1"))).state.status is Status.RUNNING
    alone = plan(replace(step("charge", undo=None, retry=ONCE)))
    assert not told(alone, Failed(at("charge"), ERROR), RetryNow()).wake


@pytest.mark.parametrize("on_timeout", list(OnTimeout))
def test_a_signal_that_came_in_time_counts_also_beside_a_parked_step(on_timeout: OnTimeout) -> None:
    """It was not taken while the saga was parked; its time has passed when somebody looks."""
    both = beside(wait("review", on_timeout))
    parked = told(both, Waits(at("review"), 5.0), Failed(at("charge"), ERROR), Signal("review", Raw(b'"yes"')))
    seq = parked.state.seq
    late = machine.decide(both, parked.state, TimedOut(at("review", now=6.0)))
    assert late.state.steps["review"].status is StepStatus.DONE
    assert (late.state.steps["review"].result, late.state.failing) == (seq, False)
    assert late.state.status is Status.PARKED


def test_what_children_were_asked_is_asked_again() -> None:
    """The request may have been lost with the outbox, and nobody else can make it."""
    one = plan(child("kid"), local("after", retry=ONCE))
    going_back = told(
        one, begot(at("kid")), Children(step="kid", started=1, completed=1, now=1.0, result=Raw(b"5")),
        Failed(at("after"), ERROR, give_up=True), Recalled(at("kid", Direction.UNDO)),
    )  # fmt: skip
    looked = machine.decide(one, going_back.state, Looks(at("kid", Direction.UNDO)))
    assert [call.do for call in looked.calls] == ["undo", "look"]
    stopped = told(one, begot(at("kid")), Cancel(), Recalled(at("kid")))
    assert [call.do for call in machine.decide(one, stopped.state, Looks(at("kid"))).calls] == ["cancel", "look"]


@pytest.mark.parametrize("charge", [step("charge", retry=ONCE), pivot("charge", retry=ONCE)], ids=["step", "pivot"])
def test_what_a_lost_history_may_have_done_is_in_doubt_also_where_nothing_began(charge: StepPlan) -> None:
    """Its condition, or its lock, raised: that says nothing of the attempt that the log does not know."""
    decision = told(
        plan(charge),
        Doubt(first_begun_at=0.5),
        Failed(at("charge", first_begun_at=0.5), ERROR, began=False, give_up=True),
    )
    assert decision.state.status is Status.PARKED
    assert decision.state.steps["charge"].do.first_begun_at == 0.5


def test_a_step_in_doubt_that_waits_for_a_lock_is_not_begun_at_once() -> None:
    """Nobody may withdraw it, so a cancel does not make it due: it would be begun over and over."""
    one = plan(step("charge"))
    blocked = told(
        one, Blocked(at("charge", deliveries=2), "account", "another saga has it", 50.0, True), Cancel(),
        Blocked(at("charge", now=2.0), "account", "another saga has it", 50.0, True),
    )  # fmt: skip
    assert blocked.state.steps["charge"].do.unknown
    assert blocked.rows[0].delay > 0


def test_a_person_may_give_the_result_of_children_that_have_completed() -> None:
    """Where none can be kept, and where a compensation of its own wants one: else only an abort is left."""
    one = plan(child("kid", pivot=True, undo=None), local("after", undo=None))
    parked = told(one, begot(at("kid")), Children(step="kid", started=1, completed=1, now=1.0, problem=PROBLEM))
    assert parked.state.status is Status.PARKED
    going_on = machine.decide(one, parked.state, MarkDone("kid", Raw(b"5"), seen=parked.state.seq))
    assert going_on.state.status is Status.RUNNING
    assert [row.step for row in going_on.rows] == ["after"]
    kept = machine.decide(one, parked.state, MarkNotDone("kid", seen=parked.state.seq))
    assert kept.state.status is Status.PARKED and kept.entries[-1].data.ignored


def test_no_result_is_given_for_children_that_are_still_there() -> None:
    """They came to nothing and are started anew, or are under way."""
    one = plan(child("kid"))
    parked = told(one, begot(at("kid")), Children(step="kid", started=1, aborted=1, now=1.0, reason="aborted"))
    assert parked.state.status is Status.PARKED
    assert machine.decide(one, parked.state, MarkDone("kid", Raw(b"5"))).entries[-1].data.ignored


def after_an_abort() -> Iterator[tuple[State, Event, State]]:
    """Steps that were under way: a step that is done, and an undo."""
    both = plan(replace(step("other"), after=()), PARKS, local("after", after=("other", "charge")))
    aborted = told(both, Failed(at("charge"), ERROR), Abort(reason="hopeless"))
    assert aborted.state.status is Status.ABORTED
    done = Succeeded(at("other"), Raw(b"7"))
    late = machine.decide(both, aborted.state, done)
    check_decision(both, aborted.state, done, late)
    assert [(entry.kind, entry.step) for entry in late.entries] == [(Kind.STEP_DONE, "other")]
    assert late.rows == ()
    yield aborted.state, done, late.state
    undone = Succeeded(at("other", Direction.UNDO), Raw(b"null"))
    later = machine.decide(both, late.state, undone)
    check_decision(both, late.state, undone, later)
    assert [entry.kind for entry in later.entries] == [Kind.UNDO_DONE]
    yield late.state, undone, later.state
    failed = machine.decide(both, aborted.state, Failed(at("other"), ERROR))
    assert (failed.entries, failed.rows) == ((), ())


def test_what_was_under_way_at_an_abort_is_in_the_log() -> None:
    """A local step has written, an external one has charged; nothing follows from it any more."""
    assert {after.status for _, _, after in after_an_abort()} == {Status.ABORTED}


def test_children_that_are_gone_are_no_success() -> None:
    """Somebody has removed their rows: nobody knows what they did."""
    one = plan(child("kid"), local("after"))
    gone = told(one, begot(at("kid")), Children(step="kid", started=1, now=1.0))
    assert gone.state.status is Status.PARKED
    assert "1 of its children are not in the database any more" in gone.state.error


def test_an_attempt_that_only_a_rebuild_knows_may_be_answered_late() -> None:
    """It counts no attempt, and its outcome is unknown."""
    one = plan(step("charge"))
    decision = told(one)
    track = replace_track(decision.state, unknown=True)
    late = machine.decide(one, replace_status(track, Status.COMPENSATING), LateAnswer("charge"))
    assert [entry.kind for entry in late.entries] == [Kind.LATE_ANSWER]


def replace_track(state: State, **changes: Any) -> State:
    known = machine.step_of(state, "charge")
    charged = msgspec.structs.replace(known, do=msgspec.structs.replace(known.do, **changes), status=StepStatus.UNKNOWN)
    return msgspec.structs.replace(state, steps={**state.steps, "charge": charged})


def replace_status(state: State, status: Status) -> State:
    return msgspec.structs.replace(state, status=status)


def test_a_pivot_that_did_not_happen_decides_nothing() -> None:
    """A person has said so; what was done before it is to be undone, and is asked about after a restore."""
    one = plan(step("reserve"), pivot("ship", retry=ONCE))
    back = told(
        one, Succeeded(at("reserve"), Raw(b"1")), Failed(at("ship"), ERROR), MarkNotDone("ship", actor="ann")
    )  # fmt: skip
    assert back.state.status is Status.COMPENSATING
    assert not machine.look.pivot_passed(one, back.state)
    assert [entry.step for entry in machine.decide(one, back.state, Doubt()).entries] == ["reserve"]
