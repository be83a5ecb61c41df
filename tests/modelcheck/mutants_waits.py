"""The machine without one of its rules about waits, deadlines, conditions and redos."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from sagas import fold, takeover
from sagas.events import Entry, Kind, Source, Succeeded, TimedOut
from sagas.machine import look
from sagas.plan import Plan, StepPlan
from sagas.states import State, StepState, StepStatus
from tests.modelcheck.mutants import rule

_ASSESS_DO: Final = takeover._assess_do
_BEFORE_BODY: Final = takeover._assess_before_body
_REDONE: Final = fold.EVOLVE[Kind.REDONE]
_STOPPING: Final = rule("stopping")


def any_wake_ends_a_sleep(planned: StepPlan, step: StepState, a: Any, *, stop: bool) -> takeover.Action:
    """A sleep whose row is due is over, whatever time was stored."""
    if not stop and planned.wait and not planned.wait.signal and step.status is StepStatus.WAITING:
        return Succeeded(a, takeover.NULL, Source.TIMER)
    return _BEFORE_BODY(planned, step, a, stop=stop)


def due_is_timed_out(planned: StepPlan, step: StepState, a: Any, *, stop: bool) -> takeover.Action:
    """A wait whose row is due has timed out, although claims, wakes and hand-backs overwrite that time."""
    if not stop and planned.wait and planned.wait.signal and step.status is StepStatus.WAITING:
        return TimedOut(a)
    return _BEFORE_BODY(planned, step, a, stop=stop)


def looked_at_after_a_crash(plan: Plan, state: State, a: Any, *rest: Any) -> takeover.Action:
    """Whoever takes over looks at the condition, as if nobody had written down what came of it."""
    return takeover.Choose() if plan.by_name[a.step].has_when and a.lost else _ASSESS_DO(plan, state, a, *rest)


def only_a_cancel(state: State, now: float | None) -> bool:
    """As if there were no deadline."""
    return state.cancel_requested


def not_in_doubt(plan: Plan, state: State, name: str, now: float | None) -> bool:
    """As if nothing could be turned back that is in doubt."""
    return _STOPPING(plan, state, name, now) and not look.step_of(state, name).do.unknown


def pivot_in_doubt_too(plan: Plan, state: State, name: str, now: float | None) -> bool:
    """As if a pivot in doubt could be turned back like any step."""
    return bool(look.turning(state, now) and plan.may_turn_back(name))


def redone_under_the_former_key(state: State, entry: Entry) -> State:
    """A redo that begins no new generation."""
    after = _REDONE(state, entry)
    if entry.data.ignored or entry.step is None:
        return after
    step = after.steps[entry.step]
    return replace(after, steps={**after.steps, entry.step: replace(step, generation=max(0, step.generation - 1))})


def redo_closes_nothing(d: Any, e: Any) -> None:
    """A redo that leaves the former key open."""
    from sagas.machine import requests

    requests.redo(d, e)
    d.marks.clear()
