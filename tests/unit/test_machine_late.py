"""Answers that arrive after the compensation of their step began, and rows made again from the log."""

from __future__ import annotations

from sagas.events import Attempt, Direction, Event, Kind, LateAnswer, NotDone, Rebuild
from sagas.retry import Retry
from sagas.states import State, Status
from sagas.takeover import Memory
from tests.support.machine_driver import ACCEPTS, COMPENSATE, Did, Driven, Script, local, plan, result, step, undo

ONCE = Retry(max_attempts=1)
CLOSED = Memory(closed=True, response=result("late"))
GIVEN_UP = {"undo": ACCEPTS, "on_unknown": COMPENSATE, "retry": ONCE}


def undone_as_unknown(*more: object) -> Driven:
    """A saga that ended as compensated without ever knowing what became of its charge."""
    saga = Driven(plan(step(**GIVEN_UP)))
    saga.deliver(Did.FAIL)
    assert saga.deliver(Did.OK).ran.generation == 0  # type: ignore[union-attr]
    assert saga.deliver(Did.OK).ran.generation == 1  # type: ignore[union-attr]
    saga.must_be(Status.COMPENSATED)
    return saga


def test_late_answer_reopens_a_compensated_saga() -> None:
    """The undo is called with the late result, under a new generation of its key, and the saga ends again."""
    saga = undone_as_unknown()
    saga.apply(LateAnswer("charge"))
    assert (saga.status, saga.kinds[-2:]) == (Status.SETTLING, ["late_answer charge", "settling charge"])
    assert saga.row is not None
    assert saga.row.delay == 0
    ran = saga.deliver(Did.OK, remembers=CLOSED).ran
    assert ran is not None
    assert (ran.argument, ran.generation) == (result("late"), 2)
    saga.must_be(Status.COMPENSATED)


def test_late_answer_reopens_a_cancelled_saga() -> None:
    """It ends as cancelled again."""
    saga = Driven(plan(step(**GIVEN_UP)))
    saga.deliver(Did.FAIL, meanwhile=saga.cancel)
    saga.deliver(Did.OK)
    saga.deliver(Did.OK)
    saga.must_be(Status.CANCELLED)
    saga.apply(LateAnswer("charge"))
    saga.deliver(Did.OK, remembers=CLOSED)
    saga.must_be(Status.CANCELLED)


def test_late_answer_of_a_step_undone_by_result() -> None:
    """A second effect, at a provider that ignores keys, is undone too."""
    saga = Driven(plan(step(undo=undo()), local("b", retry=ONCE)))
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)
    saga.apply(LateAnswer("charge"))
    ran = saga.deliver(Did.OK, remembers=CLOSED).ran
    assert ran is not None
    assert (ran.argument, ran.generation) == (result("late"), 1)
    saga.must_be(Status.COMPENSATED)


def test_late_answer_while_compensating() -> None:
    """The undo goes on, and the step is settled in the end."""
    saga = Driven(plan(step(undo=undo()), local("b", retry=ONCE)))
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    saga.apply(LateAnswer("charge"))
    assert saga.status is Status.COMPENSATING
    saga.deliver(Did.OK)
    assert saga.status is Status.SETTLING
    saga.deliver(Did.OK, remembers=CLOSED)
    saga.must_be(Status.COMPENSATED)


def test_late_answer_while_settling() -> None:
    """It opens a budget of its own, and one more look: whoever is looking may not know of it."""
    saga = Driven(plan(step(**GIVEN_UP)))
    saga.deliver(Did.FAIL)
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    saga.apply(LateAnswer("charge"))
    assert saga.status is Status.SETTLING
    settle = saga.state.steps["charge"].settle
    assert settle.attempts == settle.budget == 1
    saga.deliver(Did.OK, remembers=CLOSED)
    saga.must_be(Status.SETTLING)
    saga.deliver(Did.OK, remembers=CLOSED)
    saga.must_be(Status.COMPENSATED)


def test_late_answer_while_the_last_look_is_under_way() -> None:
    """It was asked about before it happened: the answer "it did not" does not settle what came after it."""
    saga = Driven(plan(step(has_resolve=True, undo=undo(), retry=ONCE)))
    saga.deliver(Did.FAIL)
    saga.deliver(ask=Did.NOT_DONE)
    saga.must_be(Status.SETTLING)
    asked = Attempt(step="charge", direction=Direction.SETTLE)
    saga.apply(LateAnswer("charge"))
    saga.apply(NotDone(asked))
    saga.must_be(Status.SETTLING)
    ran = saga.deliver(Did.OK, remembers=CLOSED).ran
    assert ran is not None
    assert (ran.argument, ran.generation) == (result("late"), 2)
    saga.must_be(Status.COMPENSATED)


def test_late_answer_does_not_displace_what_is_being_settled() -> None:
    """Somebody may hold the row of the one; the other one comes after it."""
    saga = Driven(plan(step("a"), step("b"), local("c", retry=ONCE)))
    for did in (Did.OK, Did.OK, Did.FAIL, Did.OK, Did.OK):
        saga.deliver(did)
    saga.must_be(Status.COMPENSATED)
    saga.apply(LateAnswer("a"))
    saga.apply(LateAnswer("b"))
    for _ in range(2):
        saga.deliver(Did.OK, remembers=CLOSED)
    assert saga.steps_of(Kind.SETTLE_DONE) == ["a", "b"]
    saga.must_be(Status.COMPENSATED)


def test_late_answer_while_parked() -> None:
    """It waits for the operator, and is settled after the resume."""
    saga = Driven(plan(step(undo=undo(retry=ONCE)), local("b", retry=ONCE)))
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    saga.deliver(Did.FAIL)
    saga.must_be(Status.PARKED)
    saga.apply(LateAnswer("charge"))
    saga.must_be(Status.PARKED)
    saga.retry_now()
    saga.deliver(Did.OK)
    assert saga.status is Status.SETTLING
    saga.deliver(Did.OK, remembers=CLOSED)
    saga.must_be(Status.COMPENSATED)


def test_without_the_late_answer_nothing_is_called_as_unknown() -> None:
    """An undo that needs a result is never called without one, even if the dedupe table lost it: it parks."""
    saga = Driven(plan(step(undo=undo()), local("b", retry=ONCE)))
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    saga.deliver(Did.OK)
    saga.apply(LateAnswer("charge"))
    saga.deliver()
    saga.must_be(Status.PARKED)


def two_settled() -> list[tuple[State, Event, State]]:
    """A saga with two steps to settle: each state before, the event, and the state after it."""
    saga = Driven(plan(step("a", has_resolve=True), step("b", has_resolve=True), local("c", retry=ONCE)))
    for did in (Did.OK, Did.OK, Did.FAIL, Did.OK, Did.OK):
        saga.deliver(did)
    saga.apply(LateAnswer("b"))
    saga.apply(LateAnswer("a"))
    seen: list[tuple[State, Event, State]] = []
    while saga.status is Status.SETTLING:
        before = saga.state
        event = saga.deliver_in(Script(asked=Did.NOT_DONE))
        assert event is not None
        seen.append((before, event, saga.state))
    return seen


def test_steps_are_settled_one_after_the_other() -> None:
    """The latest first; the saga ends with the last one."""
    seen = two_settled()
    assert [event.attempt.step for _, event, _ in seen if isinstance(event, NotDone)] == ["b", "a"]
    assert [after.status for *_, after in seen] == [Status.SETTLING, Status.COMPENSATED]


def test_late_answer_about_nothing() -> None:
    """A step that never began, has nothing to undo, or does not exist cannot reopen anything."""
    saga = Driven(plan(step(undo=None), local("b", retry=ONCE)))
    saga.deliver(Did.OK)
    saga.deliver(Did.FAIL)
    saga.must_be(Status.COMPENSATED)
    for name in ("charge", "b", "unheard of"):
        saga.apply(LateAnswer(name))
        assert not saga.last.entries, name


def test_rebuild_puts_external_work_in_doubt() -> None:
    """Nobody knows whether a body was under way, so it is asked about, or undone as unknown; never taken for "no"."""
    saga = Driven(plan(step(has_resolve=True), local("b")))
    saga.apply(Rebuild())
    assert saga.state.steps["charge"].do.unknown
    saga.deliver(ask=result("found"))
    saga.apply(Rebuild())
    assert "b" not in saga.state.steps, "a local step either committed or did not happen"


def test_rebuild_while_compensating_and_settling() -> None:
    """An undo that was under way is in doubt; settling asks in any case."""
    saga = Driven(plan(step(undo=undo(accepts_unknown=True, has_resolve=True), on_unknown=COMPENSATE, retry=ONCE)))
    saga.deliver(Did.FAIL)
    saga.apply(Rebuild())
    assert saga.state.steps["charge"].undo.unknown
    saga.deliver(Did.OK, ask=Did.NOT_DONE)
    assert saga.status is Status.SETTLING
    saga.apply(Rebuild())
    assert saga.steps_of(Kind.REBUILT) == ["charge", "charge"]
    saga.deliver(Did.OK)
    saga.must_be(Status.COMPENSATED)
