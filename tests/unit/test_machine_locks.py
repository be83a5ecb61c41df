"""Semantic locks: a step that cannot have its lock has not begun."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from sagas import machine
from sagas.events import Blocked, Kind
from sagas.machine import forward
from sagas.retry import Retry
from sagas.states import Status
from tests.support.machine_driver import LOCK_WAIT, Did, Driven, local, plan, step
from tests.unit.test_machine_parked_beside import answered, attempt

ONCE = Retry(max_attempts=1)
LOCKED: dict[str, Any] = {"has_lock": True, "retry": ONCE}


def test_a_step_that_waits_uses_no_attempt() -> None:
    """It is tried again, less and less often, and the log says so once."""
    saga = Driven(plan(local("a"), step(**LOCKED)))
    saga.deliver(Did.OK)
    delays = []
    for _ in range(12):
        saga.deliver(Did.BLOCKED)
        delays.append(round(saga.delay, 6))
    assert delays == sorted(delays)
    assert delays[0] == forward.SOONEST
    assert saga.steps_of(Kind.STEP_BLOCKED) == ["charge"]
    assert saga.state.steps["charge"].do.attempts == 0
    saga.deliver(Did.OK)
    assert (saga.status, saga.state.steps["charge"].blocked) == (Status.COMPLETED, None)


def test_it_is_refused_when_the_wait_is_over() -> None:
    """Nothing of it has happened, so nothing of it is undone."""
    saga = Driven(plan(local("a"), step(**LOCKED)))
    saga.deliver(Did.OK)
    saga.deliver(Did.BLOCKED)
    saga.due = saga.now + LOCK_WAIT
    saga.deliver(Did.BLOCKED)
    saga.deliver(Did.OK)
    assert (saga.status, saga.steps_of(Kind.UNDO_DONE)) == (Status.COMPENSATED, ["a"])


def test_without_a_wait_it_is_refused_at_once() -> None:
    """Whoever holds it."""
    saga = Driven(plan(local("a"), step(**LOCKED)))
    saga.deliver(Did.OK)
    saga.deliver(Did.HELD)
    assert saga.status is Status.COMPENSATING
    assert saga.steps_of(Kind.STEP_BLOCKED) == []


def test_one_that_is_just_being_taken_is_looked_at_again() -> None:
    """Also by who does not wait; once it is known to be held, that is a no."""
    saga = Driven(plan(local("a"), step(**LOCKED)))
    saga.deliver(Did.OK)
    saga.deliver(Did.BEING_TAKEN)
    assert (saga.status, round(saga.delay, 6)) == (Status.RUNNING, forward.SOONEST)
    saga.deliver(Did.HELD)
    assert saga.status is Status.COMPENSATING


def test_one_that_is_being_taken_for_long_is_refused() -> None:
    """A transaction may last for ever."""
    saga = Driven(plan(step(**LOCKED)))
    saga.deliver(Did.BEING_TAKEN)
    saga.due = saga.now + forward.BEING_TAKEN
    saga.deliver(Did.BEING_TAKEN)
    assert saga.status is Status.COMPENSATED


def test_a_cancel_ends_the_wait() -> None:
    """The row is woken, or, where somebody holds it, left due."""
    saga = Driven(plan(local("a"), step(**LOCKED)))
    saga.deliver(Did.OK)
    saga.deliver(Did.BLOCKED, meanwhile=saga.cancel)
    assert (saga.status, saga.delay) == (Status.RUNNING, 0.0)
    saga.deliver()
    saga.deliver(Did.OK)
    assert (saga.status, saga.steps_of(Kind.UNDO_DONE)) == (Status.CANCELLED, ["a"])


def test_a_deadline_ends_the_wait() -> None:
    """It is woken by then."""
    saga = Driven(plan(step(**LOCKED)), deadline=0.1)
    saga.deliver(Did.BLOCKED)
    assert round(saga.delay, 6) == 0.1
    saga.deliver()
    assert saga.status is Status.COMPENSATED


def test_a_dead_worker_leaves_doubt_behind() -> None:
    """It may have had the lock, and its body may have begun: what is unknown stays so, and the refusal is in doubt."""
    saga = Driven(plan(step(has_lock=True, retry=Retry(max_attempts=5))))
    saga.deliver(Did.DIE)
    saga.deliver(Did.BLOCKED)
    assert saga.state.steps["charge"].do.unknown
    assert saga.state.steps["charge"].do.attempts == 1
    saga.due = saga.now + LOCK_WAIT
    saga.deliver(Did.BLOCKED)
    assert saga.status is Status.PARKED


def test_a_retry_waits_anew() -> None:
    """A saga that parked with a wait behind it begins another."""
    saga = Driven(plan(step(has_lock=True, retry=Retry(max_attempts=5))))
    saga.deliver(Did.DIE)
    saga.deliver(Did.BLOCKED)
    saga.due = saga.now + LOCK_WAIT
    saga.deliver(Did.BLOCKED)
    saga.retry_now()
    saga.deliver(Did.BLOCKED)
    assert saga.status is Status.RUNNING
    assert saga.steps_of(Kind.STEP_BLOCKED) == ["charge", "charge"]


def test_while_another_is_parked() -> None:
    """A branch waits on beside one that parked; refused, it ends, and nothing is undone until a person decides."""
    both, state = answered(step("a", **LOCKED), Blocked(attempt(), "account:7", "held", LOCK_WAIT))
    assert state.steps["a"].blocked == LOCK_WAIT
    later = replace(attempt(), now=LOCK_WAIT)
    state = machine.decide(both, state, Blocked(later, "account:7", "held", LOCK_WAIT)).state
    assert (state.status, state.failing) == (Status.PARKED, True)
    assert machine.frontier(both, state) == ()
