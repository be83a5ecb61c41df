"""The machine without one of its rules, each as a function that takes the place of the real one."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any, Final

from msgspec.structs import replace as replace_struct

from sagas import fold, guarding, machine
from sagas.events import Call, Direction, Entry, Kind, Work
from sagas.plan import OnUnknown, Plan
from sagas.states import State, StepStatus, Track


def places(name: str) -> tuple[ModuleType, ...]:
    """The modules of the machine that call a rule by this name; which those are is the machine's own affair."""
    found = (module for path, module in sorted(sys.modules.items()) if path.startswith(machine.__name__))
    return tuple(module for module in found if hasattr(module, name))


def rule(name: str) -> Any:
    """One of the machine's rules."""
    return getattr(places(name)[0], name)


_COUNTED: Final = fold._counted
_RETRIED: Final = fold.EVOLVE[Kind.RETRIED]
_SETTLE_DONE: Final = fold.EVOLVE[Kind.SETTLE_DONE]
_GIVE_UP: Final = rule("_give_up")
_JUDGE: Final = guarding.judge
_NEEDS_UNDO: Final = rule("_needs_undo")
_SEEN_WAITING: Final = rule("_seen_waiting")
_SEEN_UNDOING: Final = rule("_seen_undoing")


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


def any_request(seen: guarding.Seen, wanted: str | None) -> guarding.Verdict:
    """The guard as if nobody had said what is asked for."""
    return _JUDGE(seen._replace(fingerprint=None), wanted)


def nameless_key(step_key: str, name: str) -> str:
    """As if a step had one effect only."""
    return step_key


def resumes_with_a_new_key(state: State, entry: Entry) -> State:
    """Resuming a parked saga as if its key had never been used."""
    state = _RETRIED(state, entry)
    assert entry.step is not None
    one = state.steps[entry.step]
    fresh = replace_struct(one, do=replace_struct(one.do, first_begun_at=None))
    return replace_struct(state, steps={**state.steps, entry.step: fresh})


def as_if_ended(d: Any, e: Any, planned: Any, step: Any) -> None:
    """A look at children that takes one that is under way for one that has completed."""
    _SEEN_WAITING(d, replace_struct(e, open=0, completed=e.completed + e.open), planned, step)


def begot_all_the_same(d: Any, e: Any) -> None:
    """Children are started without a look at what was asked for meanwhile."""
    d.log(Kind.CHILDREN_STARTED, e.attempt.step, direction=Direction.DO, count=e.count, total=e.total)
    d.calls.append(Call("start", e.attempt.step, 0, e.request))


def as_if_undone(d: Any, e: Any, step: Any) -> None:
    """A look at children that takes all of them for undone."""
    _SEEN_UNDOING(d, replace_struct(e, open=0, completed=0, undone=e.undone + e.open + e.completed), step)


def earliest(state: State, names: Any, direction: Any) -> Any:
    """Undo in the order in which it was done."""
    first = min(names, key=lambda name: state.steps[name].ended, default=None)
    return () if first is None else (Work(first, direction),)


def rebuilt_as_not_begun(state: State, entry: Entry) -> State:
    """A rebuild that says nothing about what was under way."""
    return state
