"""Waits, conditions and deadlines as a saga class declares them, and what is refused when it is created."""

from __future__ import annotations

import types
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sagas import COMPENSATE, SKIP, DefinitionError, Saga, Skip, external_step, sleep, sleep_until, step, wait_for
from sagas.plan import OnTimeout, Plan, WaitPlan
from sagas.retry import FOREVER, Retry

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Approve(Saga[int], name="test.waits.approve", version=1, deadline=timedelta(days=3)):
    """Wait for a person, then for a moment, then act."""

    review = wait_for(bool, timeout=timedelta(hours=2), on_timeout=COMPENSATE)
    cool_down = sleep(30)
    opening = sleep_until(lambda self: NOON)

    @external_step(pivot=True, when=lambda self: self.review.result or Skip("declined"))
    def ship(self) -> None: ...

    receipt = wait_for(str, on_timeout=SKIP)

    @step(retry=Retry(max_attempts=2))
    def tell(self) -> None: ...

    @step
    def file(self) -> None: ...


def test_waits_become_plans() -> None:
    """Steps in declared order; a wait has no body, no undo, and is no external step."""
    plan = Approve.plan
    assert isinstance(plan, Plan)
    assert [each.name for each in plan.steps] == ["review", "cool_down", "opening", "ship", "receipt", "tell", "file"]
    assert [each.wait for each in plan.steps if each.wait] == [
        WaitPlan(signal=True, on_timeout=OnTimeout.COMPENSATE),
        WaitPlan(signal=False),
        WaitPlan(signal=False),
        WaitPlan(signal=True, on_timeout=OnTimeout.SKIP),
    ]
    assert not any(each.external or each.undo for each in plan.steps if each.wait)
    assert [each.name for each in plan.steps if each.has_when] == ["ship"]
    assert (Approve.review.result_type, Approve.cool_down.result_type, Approve.deadline) == (
        bool, type(None), timedelta(days=3),
    )  # fmt: skip


def test_what_follows_the_pivot_is_tried_for_ever() -> None:
    """Unless its author said otherwise."""
    assert [Approve.plan.by_name[name].retry.max_attempts for name in ("ship", "tell", "file")] == [5, 2, FOREVER]


def test_when_a_wait_ends() -> None:
    """In epoch seconds; a wait without a timeout ends with a signal only."""
    run = types.SimpleNamespace(input=7)
    ends = [each.ends(run, 1000.0) for each in (Approve.review, Approve.cool_down, Approve.opening, Approve.receipt)]
    assert ends == [8200.0, 1030.0, NOON.timestamp(), None]


@pytest.mark.parametrize("said", [datetime(2030, 1, 1), -1, float("nan"), "soon", True], ids=repr)
def test_a_wait_that_says_nonsense_is_an_error_of_its_step(said: object) -> None:
    """A moment without a time zone, and what is no duration."""

    class P(Saga[None], name="test.waits.nonsense", version=1):
        nap = sleep_until(lambda self: said)  # type: ignore[arg-type,return-value]

    with pytest.raises(ValueError, match=r"P\.nap"):
        P.nap.ends(types.SimpleNamespace(), 0.0)


def made(**options: Any) -> Callable[[dict[str, Any]], Any]:
    """A saga class with these options, and then these steps."""
    given = {"name": "test.waits.made", "version": 1, **options}
    return lambda steps: types.new_class("P", (Saga[None],), given, lambda space: space.update(steps))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "timeout of 0 days past ten years": (lambda: wait_for(int, timeout=timedelta(days=4000)), "from 0 to ten years"),
    "on_timeout": (lambda: wait_for(int, on_timeout="park"), "PARK, COMPENSATE or SKIP"),  # type: ignore[arg-type]
    "sleep": (lambda: sleep("a day"), "seconds or a timedelta"),  # type: ignore[arg-type]
    "sleep_until": (lambda: sleep_until(datetime(2030, 1, 1)), "aware datetime"),
    "function": (lambda: sleep(lambda: 3), "must take one argument"),  # type: ignore[arg-type,misc]
    "when": (lambda: step(when=True)(lambda self: None), "must be a plain function of the saga"),  # type: ignore[call-overload]
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused_at_once(name: str) -> None:
    """The message says what was given and what would do."""
    declare, message = REFUSED[name]
    with pytest.raises(DefinitionError, match=message):
        declare()


def test_turning_back_after_the_pivot_is_refused() -> None:
    """There is no way back from there."""
    with pytest.raises(DefinitionError, match=r"'review' comes after the pivot 'pay'.*use on_timeout=PARK or SKIP"):

        class P(Saga[None], name="test.waits.after", version=1):
            @external_step(pivot=True)
            def pay(self) -> None: ...

            review = wait_for(bool, on_timeout=COMPENSATE)


@pytest.mark.parametrize("deadline", [timedelta(0), timedelta(days=4000), 60])
def test_a_deadline_that_cannot_be_is_refused(deadline: Any) -> None:
    """Above 0, at most ten years, and a timedelta."""
    with pytest.raises(DefinitionError, match="must be a timedelta above 0"):
        made(deadline=deadline)({"nap": sleep(1)})


def test_a_wait_changes_the_fingerprint() -> None:
    """What a saga waits for, and whether it looks at a condition, are not changed without a new version."""

    def fingerprint(each: Any) -> str:
        found = made()({"a": each}).fingerprint()
        assert isinstance(found, str)
        return found

    declared = (wait_for(int), wait_for(str), wait_for(int, on_timeout=SKIP), sleep(1))
    assert len({fingerprint(each) for each in declared}) == 4
    assert fingerprint(sleep(1)) == fingerprint(sleep(2))
    assert fingerprint(wait_for(int)) == fingerprint(wait_for(int, timeout=9))
