"""Steps that start other sagas: they wait for all of them, and turn back with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import Raw

from sagas import machine
from sagas.events import (
    Attempt,
    Cancel,
    Children,
    Decision,
    Direction,
    Event,
    Failed,
    Looks,
    NotDone,
    Pause,
    Recalled,
    Refused,
    Resume,
    RetryNow,
    Succeeded,
    UndoCompleted,
    Withdrawn,
)
from sagas.machine.look import FOREVER, PAUSE
from sagas.plan import ChildrenPlan, Plan
from sagas.retry import Retry
from sagas.states import State, Status, StepStatus
from sagas.takeover import Beget, Misplaced, assess
from tests.support.machine_checks import check_decision
from tests.support.machine_driver import ERROR, begot, child, local, pivot, plan, started, step
from tests.support.machine_explorer import beside

ONE = plan(local("before"), child("kid"), local("after"))
MANY = ChildrenPlan(at_once=2)


class Life:
    """One saga, driven event by event."""

    def __init__(self, of: Plan) -> None:
        self.plan, self.state, self.kinds = of, started(of).state, ["started"]
        self.last = Decision(self.state)

    def tell(self, event: Event) -> Decision:
        self.last = machine.decide(self.plan, self.state, event)
        check_decision(self.plan, self.state, event, self.last)
        self.kinds += [f"{each.kind} {each.step or ''}".strip() for each in self.last.entries]
        self.state = self.last.state
        return self.last

    def at(self, step: str, direction: Direction = Direction.DO, now: float = 1.0) -> Attempt:
        return Attempt(step=step, direction=direction, now=now)

    def done(self, step: str, direction: Direction = Direction.DO) -> None:
        self.tell(Succeeded(self.at(step, direction), Raw(b"1")))

    def begets(self, step: str = "kid", count: int = 1, total: int = 1) -> None:
        assert isinstance(assess(self.plan, self.state, self.at(step)), Beget)
        self.tell(begot(self.at(step), count, total))

    def assessed(self, step: str = "kid", direction: Direction = Direction.DO, now: float = 1.0) -> object:
        return assess(self.plan, self.state, self.at(step, direction, now))

    def stand(self, step: str = "kid", **counts: object) -> Decision:
        known = self.state.steps[step]
        told = {"round": known.do.attempts, "started": known.started, **counts}
        return self.tell(Children(step=step, now=1.0, reason="its child has ended", **told))  # type: ignore[arg-type]

    @property
    def does(self) -> list[str]:
        return [call.do for call in self.last.calls]

    def must_be(self, status: Status) -> None:
        assert self.state.status is status, self.kinds


def waiting() -> Life:
    """A saga that waits for its child."""
    life = Life(ONE)
    life.done("before")
    life.begets()
    return life


def completed() -> Life:
    """A saga whose child has completed, as everything else has."""
    life = waiting()
    life.stand(completed=1, result=Raw(b"5"))
    life.done("after")
    life.must_be(Status.COMPLETED)
    return life


def test_the_child_is_started_with_the_entry_that_says_so() -> None:
    """One commit; the row then sleeps, and the child's end brings the next step's."""
    life = waiting()
    assert (life.does, [row.delay for row in life.last.rows]) == (["start"], [FOREVER])
    assert life.state.steps["kid"].status is StepStatus.WAITING
    life.stand(completed=1, result=Raw(b"5"))
    assert life.kinds[-2:] == ["children_started kid", "step_done kid"]
    assert [row.step for row in life.last.rows] == ["after"]
    assert [work.step for work in life.last.surplus] == ["kid"]


def test_while_one_is_open_it_waits() -> None:
    """A look that finds nothing new changes nothing; a row that is due without a reason is a look."""
    life = waiting()
    before = life.state
    life.stand(open=1)
    assert life.state == before
    assert isinstance(life.assessed(), Looks)
    life.tell(Looks(life.at("kid")))
    assert (life.does, life.state, [row.delay for row in life.last.rows]) == (["look"], before, [FOREVER])


def test_a_child_that_came_to_nothing_turns_it_back() -> None:
    """It did nothing that is left, so it is no step to undo."""
    life = waiting()
    life.stand(undone=1)
    life.must_be(Status.COMPENSATING)
    assert [work.step for work in machine.frontier(life.plan, life.state)] == ["before"]


def test_a_cancel_recalls_the_child_and_waits() -> None:
    """Nothing is undone before the child has come to its end; once is enough."""
    life = waiting()
    assert life.tell(Cancel()).wake
    assert isinstance(life.assessed(), Recalled)
    life.tell(Recalled(life.at("kid")))
    assert (life.does, life.last.rows[0].delay) == (["cancel", "look"], FOREVER)
    assert isinstance(life.assessed(), Looks)
    life.stand(open=1)
    life.must_be(Status.RUNNING)
    life.stand(undone=1)
    life.must_be(Status.COMPENSATING)


@pytest.mark.parametrize(
    ("of", "stop", "ends_as"),
    [
        (plan(local("before"), child("kid")), Cancel(), Status.COMPENSATING),
        (plan(child("kid")), Cancel(), Status.CANCELLED),
        (plan(local("before"), child("kid", pivot=True)), Cancel(), Status.COMPENSATING),
        (plan(local("before"), child("kid")), None, Status.COMPENSATING),
    ],
    ids=["cancel", "nothing to undo", "a pivot", "deadline"],
)
def test_none_are_started_once_the_saga_is_to_turn_back(of: Plan, stop: Cancel | None, ends_as: Status) -> None:
    """What they are given was found out before, and is recorded after the cancel was."""
    life = Life(of)
    if stop is None:
        life.state = started(of, 50.0).state
    if "before" in of.by_name:
        life.done("before")
    assert isinstance(life.assessed(), Beget)
    if stop is not None:
        life.tell(stop)
    life.tell(begot(life.at("kid", now=60.0)))
    assert life.does == []
    assert "children_started kid" not in life.kinds
    life.must_be(ends_as)


def begot_too_late() -> Iterator[tuple[State, Event, State]]:
    """What they are given was found out too late for sagas that have nothing to undo: before, the event, after."""
    timed = Life(plan(child("kid")))
    timed.state = started(timed.plan, 50.0).state
    asked = Life(plan(beside(child("kid")), beside(step("charge", has_resolve=True, retry=Retry(max_attempts=1)))))
    asked.tell(Failed(asked.at("charge"), ERROR))
    asked.tell(NotDone(asked.at("charge")))
    for life in (timed, asked):
        before, event = life.state, begot(life.at("kid", now=60.0))
        yield before, event, life.tell(event).state


def test_none_are_started_where_nothing_is_to_be_undone() -> None:
    """The saga has turned back with that, or has only to look once more at what was in doubt."""
    ends = [(after.status, machine.step_of(after, "kid").started) for _, _, after in begot_too_late()]
    assert ends == [(Status.COMPENSATED, 0), (Status.SETTLING, 0)]


def test_none_are_started_beside_a_step_that_has_failed() -> None:
    """The saga turns back, and has only to know that this one is out of the way."""
    life = Life(plan(beside(child("kid")), beside(step("charge"))))
    life.tell(Refused(life.at("charge"), ERROR))
    assert life.state.failing
    life.tell(begot(life.at("kid")))
    assert (life.does, life.state.steps["kid"].status) == ([], StepStatus.NOT_DONE)
    life.must_be(Status.COMPENSATED)


def test_none_are_started_while_the_saga_is_paused() -> None:
    """The row sleeps; a resume wakes it, and the step begins again."""
    life = Life(ONE)
    life.done("before")
    life.tell(Pause())
    before = life.state
    life.tell(begot(life.at("kid")))
    assert (life.does, life.state, [row.delay for row in life.last.rows]) == ([], before, [PAUSE])
    assert life.tell(Resume()).wake
    life.begets()
    assert life.does == ["start"]


def test_a_child_that_completed_in_spite_of_the_recall_is_undone() -> None:
    """As a step that had been under way."""
    life = waiting()
    life.tell(Cancel())
    life.tell(Recalled(life.at("kid")))
    life.stand(completed=1, result=Raw(b"5"))
    life.must_be(Status.COMPENSATING)
    assert isinstance(life.assessed(direction=Direction.UNDO), Recalled)


def test_what_a_child_completed_is_undone_in_its_place() -> None:
    """After what came later, before what came earlier, and the end of its undo is awaited."""
    life = waiting()
    life.stand(completed=1, result=Raw(b"5"))
    life.tell(Cancel())
    life.tell(Failed(life.at("after"), ERROR, give_up=True))
    life.must_be(Status.COMPENSATING)
    life.tell(Recalled(life.at("kid", Direction.UNDO)))
    assert (life.does, life.last.rows[0].delay) == (["undo", "look"], FOREVER)
    life.stand(completed=1)
    life.stand(open=1)
    assert isinstance(life.assessed(direction=Direction.UNDO), Looks)
    life.tell(Looks(life.at("kid", Direction.UNDO)))
    assert life.does == ["undo", "look"]
    life.stand(undone=1)
    assert life.kinds[-1] == "undo_done kid"
    assert [row.step for row in life.last.rows] == ["before"]


PROBLEM = "the results take 9 bytes together, 5 are allowed"


def test_children_whose_result_cannot_be_kept_are_not_forgotten() -> None:
    """They have completed: who retries has them looked at again, and who cancels has them undone."""
    life = waiting()
    life.stand(completed=1, problem=PROBLEM)
    life.must_be(Status.PARKED)
    life.tell(RetryNow())
    assert isinstance(life.assessed(), Looks)
    life.stand(completed=1, problem=PROBLEM)
    life.must_be(Status.PARKED)
    life.tell(Cancel())
    assert isinstance(life.assessed(), Recalled)
    life.tell(Recalled(life.at("kid")))
    life.stand(completed=1, problem=PROBLEM)
    assert life.does == ["undo"]
    life.stand(undone=1)
    life.must_be(Status.COMPENSATING)
    assert [work.step for work in machine.frontier(life.plan, life.state)] == ["before"]


def test_a_cancel_that_came_before_their_result_was_missed_undoes_them() -> None:
    """Also when the last child completed in spite of it."""
    life = waiting()
    life.tell(Cancel())
    life.tell(Recalled(life.at("kid")))
    life.stand(completed=1, problem=PROBLEM)
    assert life.does == ["undo"]


def test_a_retry_after_the_deadline_undoes_them() -> None:
    """What was started is not forgotten."""
    life = Life(ONE)
    life.state = started(ONE, 50.0).state
    life.done("before")
    life.begets()
    life.stand(completed=1, problem=PROBLEM)
    life.tell(RetryNow())
    assert isinstance(life.assessed(now=60.0), Recalled)


def test_a_pivot_that_completed_without_its_result_never_turns_back() -> None:
    """It has decided the saga, and waits for a person whatever is asked."""
    life = Life(plan(local("before"), child("kid", pivot=True)))
    life.done("before")
    life.begets()
    life.tell(Cancel())
    life.tell(Recalled(life.at("kid")))
    life.stand(completed=1, problem=PROBLEM)
    life.must_be(Status.PARKED)
    life.tell(RetryNow())
    life.stand(completed=1, result=Raw(b"5"))
    life.must_be(Status.COMPLETED)


def test_children_that_are_gone_are_not_taken_for_undone() -> None:
    """Whoever removed them, nobody knows what is left of what they did."""
    life = waiting()
    life.stand(completed=1, result=Raw(b"5"))
    life.tell(Failed(life.at("after"), ERROR, give_up=True))
    life.tell(Recalled(life.at("kid", Direction.UNDO)))
    life.stand()
    life.must_be(Status.PARKED)
    assert "1 of its children are not in the database any more" in life.state.error
    life.tell(RetryNow())
    life.stand()
    assert life.kinds[-1] == "undo_done kid"


@pytest.mark.parametrize("goes_on", [RetryNow(), Cancel()], ids=["retry", "cancel"])
def test_a_child_aborted_after_it_was_recalled_parks_once(goes_on: Event) -> None:
    """Nobody knows what is left of what it did; who retries says that it is in order, and the saga turns back."""
    life = waiting()
    life.tell(Cancel())
    life.tell(Recalled(life.at("kid")))
    life.stand(aborted=1)
    life.must_be(Status.PARKED)
    assert life.state.error == "its child has ended; see to what it has done, then retry this saga, which turns back"
    life.tell(goes_on)
    assert isinstance(life.assessed(), Withdrawn)
    life.tell(Withdrawn(life.at("kid")))
    life.must_be(Status.COMPENSATING)
    assert [work.step for work in machine.frontier(life.plan, life.state)] == ["before"]


def test_one_aborted_beside_others_that_had_completed_parks_when_those_are_undone() -> None:
    """First what came of the others, then the word of a person."""
    life = Life(plan(local("before"), child("kid", children=MANY)))
    life.done("before")
    life.begets(count=2, total=2)
    life.tell(Cancel())
    life.tell(Recalled(life.at("kid")))
    life.stand(completed=1, aborted=1)
    assert life.does == ["undo"]
    life.must_be(Status.RUNNING)
    life.stand(undone=1, aborted=1)
    life.must_be(Status.PARKED)


def test_a_child_aborted_beside_a_step_that_has_failed_parks_once() -> None:
    """The saga goes on turning back when a person has seen to it."""
    life = Life(plan(beside(child("kid")), beside(step("charge"))))
    life.begets()
    life.tell(Refused(life.at("charge"), ERROR))
    life.tell(Recalled(life.at("kid")))
    life.stand(aborted=1)
    life.must_be(Status.PARKED)
    life.tell(RetryNow())
    life.tell(Withdrawn(life.at("kid")))
    life.must_be(Status.COMPENSATED)


def test_a_child_aborted_while_it_is_undone_parks_once() -> None:
    """Who retries says that it is in order."""
    life = waiting()
    life.stand(completed=1, result=Raw(b"5"))
    life.tell(Failed(life.at("after"), ERROR, give_up=True))
    life.tell(Recalled(life.at("kid", Direction.UNDO)))
    life.stand(aborted=1)
    life.must_be(Status.PARKED)
    life.tell(RetryNow())
    life.stand(aborted=1)
    assert life.kinds[-1] == "undo_done kid"


def test_a_completed_saga_is_undone_with_its_parent() -> None:
    """Last step first, as a cancel would; another status takes no notice."""
    life = completed()
    life.tell(UndoCompleted("saga 1", "it turns back"))
    life.must_be(Status.COMPENSATING)
    assert [row.step for row in life.last.rows] == ["after"]
    before = life.state
    life.tell(UndoCompleted())
    assert life.state == before


def test_beside_one_that_parked_it_goes_on_to_its_end() -> None:
    """It is looked at, recalled and ended like any step that runs beside one that waits for a person."""
    both = plan(beside(child("kid")), beside(step("charge", undo=None, retry=Retry(max_attempts=1))))
    life = Life(both)
    life.tell(Failed(life.at("charge"), ERROR))
    life.must_be(Status.PARKED)
    life.begets()
    assert life.does == ["start"]
    life.tell(Looks(life.at("kid")))
    assert life.does == ["look"]
    life.stand(completed=1, result=Raw(b"5"))
    assert life.state.steps["kid"].status is StepStatus.DONE


def test_beside_one_that_parked_it_is_recalled_at_the_deadline() -> None:
    """The deadline is the saga's."""
    both = plan(beside(child("kid")), beside(step("charge", undo=None, retry=Retry(max_attempts=1))))
    life = Life(both)
    life.state = started(both, 50.0).state
    life.begets()
    life.tell(Failed(life.at("charge"), ERROR))
    assert isinstance(life.assessed(now=60.0), Recalled)
    life.tell(Recalled(life.at("kid", now=60.0)))
    assert life.does == ["cancel", "look"]


def test_a_retry_waits_and_starts_it_anew() -> None:
    """After the pivot for ever; the backoff is the row's, and an operator need not wait for it."""
    life = Life(plan(pivot("decide"), child("kid", undo=None, retry=Retry(max_attempts=9, first=100))))
    life.done("decide")
    life.begets()
    life.stand(undone=1)
    assert life.last.wake
    assert isinstance(life.assessed(now=2.0), Misplaced)
    assert machine.place(life.plan, life.state, 2.0).rows[0].delay > 0
    assert isinstance(life.assessed(now=1000.0), Beget)
    life.tell(RetryNow())
    life.begets()
    assert life.does == ["start", "look"]


def test_a_retry_comes_to_all_of_them_again() -> None:
    """Those that have completed take no time; that the round is over says who has come to the last of them."""
    forever = Retry(max_attempts=9, first=100)
    life = Life(plan(pivot("decide"), child("kid", undo=None, retry=forever, children=MANY)))
    life.done("decide")
    life.begets(count=2, total=3)
    life.stand(completed=2, count=1)
    life.stand(completed=2, undone=1)
    assert life.kinds[-1] == "step_failed kid"
    life.tell(RetryNow())
    life.begets(count=2, total=3)
    life.stand(completed=2, count=1)
    assert (life.does, life.state.steps["kid"].started) == (["start", "look"], 3)
    life.stand(completed=3, result=Raw(b"[1,2,3]"))
    life.must_be(Status.COMPLETED)


def test_more_of_them_than_run_at_once() -> None:
    """The next are started as earlier ones end; all have to end."""
    life = Life(plan(child("kid", children=MANY)))
    life.begets(count=2, total=3)
    assert life.does == ["start", "look"]
    life.stand(open=1, completed=1, count=1)
    assert (life.does, life.state.steps["kid"].started) == (["start"], 3)
    life.stand(open=1, completed=2)
    life.must_be(Status.RUNNING)
    life.stand(completed=3, result=Raw(b"[1,2,3]"))
    life.must_be(Status.COMPLETED)


def test_one_that_fails_recalls_the_others() -> None:
    """What they completed is undone before the saga turns back."""
    life = Life(plan(child("kid", children=MANY)))
    life.begets(count=2, total=3)
    life.stand(open=1, undone=1, count=1)
    assert life.does == ["cancel", "look"]
    life.stand(completed=1, undone=1)
    assert life.does == ["undo"]
    life.stand(undone=2)
    life.must_be(Status.COMPENSATED)


def test_as_many_may_fail_as_are_tolerated() -> None:
    """Then it is done all the same."""
    life = Life(plan(child("kid", children=ChildrenPlan(at_once=2, tolerated=1))))
    life.begets(count=2, total=2)
    life.stand(completed=1, undone=1, result=Raw(b"[1,null]"))
    life.must_be(Status.COMPLETED)


def test_none_of_them() -> None:
    """It is done at once."""
    life = Life(plan(child("kid", children=MANY)))
    life.begets(count=0, total=0)
    life.must_be(Status.COMPLETED)


def test_a_look_from_before_more_were_started_is_made_again() -> None:
    """It knows nothing of them."""
    life = Life(plan(child("kid", children=MANY)))
    life.begets(count=1, total=2)
    life.stand(completed=1, count=1)
    before = life.state
    life.stand(completed=1, started=1, result=Raw(b"[1]"))
    assert (life.state, life.does) == (before, ["look"])


@pytest.mark.parametrize("generation", [1, 7])
def test_children_of_another_generation_do_not_count(generation: int) -> None:
    """A redo forgets them."""
    life = waiting()
    before = life.state
    life.tell(Children(step="kid", generation=generation, completed=1))
    assert life.state == before
