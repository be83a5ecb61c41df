"""The machine without one of its rules, each as a function that takes the place of the real one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from msgspec.structs import replace as replace_struct

from sagas import fold, machine
from sagas.events import Entry, Kind
from sagas.plan import OnUnknown, Plan
from sagas.states import State, StepStatus, Track

_COUNTED: Final = fold._counted
_RETRIED: Final = fold.EVOLVE[Kind.RETRIED]
_SETTLE_DONE: Final = fold.EVOLVE[Kind.SETTLE_DONE]
_GIVE_UP: Final = machine._give_up
_NEEDS_UNDO: Final = machine._needs_undo


def never_unknown(external: bool, track: Track, a: Any) -> bool:
    """As if every attempt that brought no answer had done nothing."""
    return False


def forgetful(state: State, entry: Entry, **changes: Any) -> Track:
    """Folding an entry without what it says about unknown attempts."""
    return replace_struct(_COUNTED(state, entry, **changes), unknown=False)


def resumes_afresh(state: State, entry: Entry) -> State:
    """Resuming a parked saga as if nothing had been tried."""
    state = _RETRIED(state, entry)
    if entry.step is None:
        return state
    one = state.steps[entry.step]
    fresh = replace_struct(one, do=replace_struct(one.do, unknown=False))
    return replace_struct(state, steps={**state.steps, entry.step: fresh})


def pivot_as_any_step(d: Any, a: Any, **options: Any) -> None:
    """Giving up a pivot whose outcome is unknown as if it could be undone."""
    given = d.plan
    steps = tuple(replace(each, pivot=False, on_unknown=OnUnknown.COMPENSATE) for each in given.steps)
    d.plan = Plan(name=given.name, version=given.version, steps=steps)
    _GIVE_UP(d, a, **options)
    d.plan = given


def not_done_needs_no_undo(plan: Plan, state: State, name: str) -> bool:
    """As if nothing could land any more once `resolve` has said that it did not happen."""
    return state.steps[name].status is not StepStatus.NOT_DONE and _NEEDS_UNDO(plan, state, name)


def settled_whatever_came(state: State, entry: Entry) -> State:
    """As if the last look had known of everything that came while it was under way."""
    state = _SETTLE_DONE(state, entry)
    assert entry.step is not None
    one = replace_struct(state.steps[entry.step], unsettled=False)
    return replace_struct(state, steps={**state.steps, entry.step: one})
