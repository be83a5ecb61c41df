"""Folding a saga log into a state: what each log entry means, and nothing else.

The machine changes state only by writing entries and folding them here, so the saga row is at any
time what its log folds to. `sagas verify` compares the two; a rebuild restores the one from the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Raw
from msgspec.structs import replace

from sagas.events import Direction, Entry, Facts, Kind, Source
from sagas.states import State, Status, StepState, StepStatus, Track

UNTOUCHED: Final = StepState()


def fold(entries: Iterable[Entry]) -> State:
    """The state that a whole log leads to.

    Args:
        entries: every entry of one saga, in order of `seq`.

    Raises:
        ValueError: the log is empty, does not begin with its start, or misses an entry.
    """
    state = State(Status.RUNNING, -1)
    for entry in entries:
        if entry.seq != state.seq + 1 or (entry.seq == 0) != (entry.kind is Kind.STARTED):
            raise ValueError(f"entry {entry.seq} ({entry.kind}) cannot follow entry {state.seq}")
        state = evolve(state, entry)
    if state.seq < 0:
        raise ValueError("the log is empty")
    return state


def evolve(state: State, entry: Entry) -> State:
    """The state after one more entry."""
    return EVOLVE[entry.kind](replace(state, seq=entry.seq), entry)


def track_of(step: StepState, direction: Direction) -> Track:
    """How work on a step in one direction has gone so far."""
    if direction is Direction.DO:
        return step.do
    return step.undo if direction is Direction.UNDO else step.settle


def _with_step(state: State, entry: Entry, **changes: Any) -> State:
    assert entry.step is not None
    step = replace(state.steps.get(entry.step, UNTOUCHED), **changes)
    return replace(state, steps={**state.steps, entry.step: step})


def _ended(state: State, entry: Entry, **changes: Any) -> State:
    """The step has come to its end going forward."""
    return _with_step(state, entry, open=False, recalled=False, blocked=None, **changes)


def _opened(state: State, names: tuple[str, ...]) -> State:
    """These steps are under way, and the frontier does not say so."""
    steps = {name: replace(state.steps.get(name, UNTOUCHED), open=True) for name in names}
    return replace(state, steps=state.steps | steps) if names else state


def _frontier_only(state: State) -> State:
    """From here on the frontier alone says what is under way."""
    if not any(step.open for step in state.steps.values()):
        return state
    return replace(state, steps={name: replace(step, open=False) for name, step in state.steps.items()})


def _counted(state: State, entry: Entry, **changes: Any) -> Track:
    """The track of the entry's work with the begun bodies of this entry added."""
    data, step = entry.data, state.steps.get(entry.step or "", UNTOUCHED)
    track = track_of(step, data.direction or Direction.DO)
    return replace(
        track,
        attempts=track.attempts + data.deliveries,
        unknown=track.unknown or data.unknown,
        closed=track.closed or data.closed,
        refused=track.refused or data.refused,
        first_begun_at=data.first_begun_at,
        **changes,
    )


def _track_field(data: Facts) -> str:
    return (data.direction or Direction.DO).value


def _started(state: State, entry: Entry) -> State:
    return replace(state, status=Status.RUNNING, deadline=entry.data.deadline)


def _step_done(state: State, entry: Entry) -> State:
    track = replace(_counted(state, entry), unknown=False, doubted=False, failures=0, asked=0)
    result, waiting = entry.data.ref, state.steps.get(entry.step or "", UNTOUCHED).signals
    return _ended(
        state, entry, status=StepStatus.DONE, result=entry.seq if result is None else result, ended=entry.seq,
        do=track, until=None, signals=tuple([seq for seq in waiting if seq != result]),
    )  # fmt: skip


def _step_skipped(state: State, entry: Entry) -> State:
    return _ended(state, entry, status=StepStatus.SKIPPED, ended=entry.seq, until=None)


def _step_chosen(state: State, entry: Entry) -> State:
    return _with_step(state, entry, chosen=True)


def _step_blocked(state: State, entry: Entry) -> State:
    return _with_step(state, entry, blocked=entry.data.until, do=_counted(state, entry))


def _waiting(state: State, entry: Entry) -> State:
    return _with_step(state, entry, status=StepStatus.WAITING, until=entry.data.until)


def _children_started(state: State, entry: Entry) -> State:
    step, data = state.steps.get(entry.step or "", UNTOUCHED), entry.data
    items = entry.seq if isinstance(data.result, Raw) else step.items
    return _with_step(
        state, entry, status=StepStatus.WAITING, until=None, total=data.total, started=step.started + data.count,
        items=items,
    )  # fmt: skip


def _children_recalled(state: State, entry: Entry) -> State:
    return _with_step(state, entry, recalled=True)


def _signalled(state: State, entry: Entry) -> State:
    if entry.data.ignored:
        return state
    waiting = state.steps.get(entry.step or "", UNTOUCHED).signals
    return _with_step(state, entry, signals=(*waiting, entry.seq))


def _step_not_done(state: State, entry: Entry) -> State:
    track = _counted(state, entry)
    return _ended(
        state, entry, status=StepStatus.NOT_DONE, ended=entry.seq, unsettled=track.unknown, do=track
    )  # fmt: skip


def _step_unknown(state: State, entry: Entry) -> State:
    return _ended(
        state, entry, status=StepStatus.UNKNOWN, ended=entry.seq, unsettled=True, do=_counted(state, entry)
    )  # fmt: skip


def _failed(state: State, entry: Entry) -> State:
    name = _track_field(entry.data)
    failures = track_of(state.steps.get(entry.step or "", UNTOUCHED), Direction(name)).failures
    track = {name: _counted(state, entry, failures=failures + 1, asked=0), "blocked": None}
    if entry.data.until is None:
        return _with_step(state, entry, **track)
    return _with_step(state, entry, until=entry.data.until, started=0, recalled=False, **track)  # begun anew then


def _undecided(state: State, entry: Entry) -> State:
    name = _track_field(entry.data)
    asked = track_of(state.steps.get(entry.step or "", UNTOUCHED), Direction(name)).asked
    return _with_step(state, entry, **{name: _counted(state, entry, asked=asked + 1)})


def _undo_done(state: State, entry: Entry) -> State:
    return _with_step(state, entry, status=StepStatus.UNDONE, undo=_counted(state, entry))


def _settle_done(state: State, entry: Entry) -> State:
    step, track = state.steps.get(entry.step or "", UNTOUCHED), _counted(state, entry)
    if step.again:  # whoever looked did not know of the late answer
        track = _new_budget(track)
    return _with_step(state, entry, unsettled=step.again, again=False, settled=step.settled + 1, settle=track)


def _new_budget(track: Track) -> Track:
    return replace(track, budget=track.attempts, failures=0, asked=0, closed=False)


def _late_answer(state: State, entry: Entry) -> State:
    """There is something to settle (again), with a budget of its own."""
    step = state.steps.get(entry.step or "", UNTOUCHED)
    again = step.again or entry.data.direction is Direction.SETTLE
    opened = step.opened if step.unsettled else entry.seq
    return _with_step(state, entry, unsettled=True, again=again, opened=opened, settle=_new_budget(step.settle))


def _rebuilt(state: State, entry: Entry) -> State:
    name = _track_field(entry.data)
    return _with_step(state, entry, **{name: _counted(state, entry)}) if entry.data.unknown else state


def _doubted(state: State, entry: Entry) -> State:
    if entry.step is None:
        return state
    return _with_step(state, entry, **{_track_field(entry.data): _counted(state, entry, doubted=True)})


def _cancel_requested(state: State, entry: Entry) -> State:
    return replace(state, cancel_requested=state.cancel_requested or not entry.data.ignored)


def _parked(state: State, entry: Entry) -> State:
    work: dict[str, Any] = {_track_field(entry.data): _counted(state, entry)}
    if entry.data.source is Source.CHILDREN:
        # those that came to nothing are begun anew, if at all; those that completed stay
        work |= {"started": 0, "recalled": False} if entry.data.deliveries else {"complete": True}
    state = _opened(_with_step(state, entry, open=False, parked=True, blocked=None, **work), entry.data.open)
    parked_from = state.parked_from or state.status
    return replace(state, status=Status.PARKED, parked_from=parked_from, error=entry.data.reason)


def _retried(state: State, entry: Entry) -> State:
    """Resume a parked saga: a new budget for the work that parked. What is unknown stays unknown."""
    if entry.data.ignored:
        return state
    name = _track_field(entry.data)
    track = track_of(state.steps.get(entry.step or "", UNTOUCHED), Direction(name))
    resumed = replace(state, status=state.parked_from or state.status, parked_from=None, error="")
    going_forward = name == Direction.DO.value
    changes: dict[str, Any] = {"parked": False, "open": state.failing and going_forward, "complete": False}
    changes |= {name: replace(_new_budget(track), closed=entry.data.closed)}
    step = resumed.steps.get(entry.step or "", UNTOUCHED)
    if step.status is StepStatus.WAITING and not step.started:  # children that were started are still its own
        changes |= {"status": StepStatus.PENDING, "until": None}  # it waits anew
    resumed = _with_step(resumed, entry, **changes)
    return resumed if resumed.failing else _frontier_only(resumed)


def _redone(state: State, entry: Entry) -> State:
    """The step as if it had never begun, under a new generation of its key; a saga parked there goes on."""
    if entry.data.ignored:
        return state
    step = state.steps.get(entry.step or "", UNTOUCHED)
    fresh = replace(UNTOUCHED, generation=step.generation + 1, signals=step.signals, open=step.open)
    assert entry.step is not None
    steps = {name: each for name, each in state.steps.items() if name != entry.step} | {entry.step: fresh}
    return _frontier_only(replace(state, status=Status.RUNNING, parked_from=None, error="", steps=steps))


def _resolved(state: State, entry: Entry) -> State:
    """A person says what became of a step; the saga goes on unless another one waits for a person."""
    if entry.data.ignored:
        return state
    state = _with_step(state, entry, parked=False)
    if any(step.parked for step in state.steps.values()):
        return state
    resumed = replace(state, status=state.parked_from or state.status, parked_from=None, error="")
    return resumed if resumed.failing else _frontier_only(resumed)


def _paused(state: State, entry: Entry) -> State:
    return replace(state, paused=entry.kind is Kind.PAUSED)


def _turning(state: State, entry: Entry) -> State:
    return replace(_opened(state, entry.data.open), failing=True, error=entry.data.reason)


def _turned(state: State, entry: Entry) -> State:
    return _frontier_only(replace(state, status=Status.COMPENSATING, failing=False, error=entry.data.reason))


def _aborted(state: State, entry: Entry) -> State:
    return replace(state, status=Status.ABORTED, paused=False, parked_from=None, error=entry.data.reason)


def _becomes(status: Status) -> Callable[[State, Entry], State]:
    return lambda state, entry: replace(state, status=status)


def _ends(status: Status) -> Callable[[State, Entry], State]:
    """What has ended is not paused: nothing would ever resume it."""
    return lambda state, entry: replace(state, status=status, paused=False)


EVOLVE: Final[dict[Kind, Callable[[State, Entry], State]]] = {
    Kind.STARTED: _started,
    Kind.STEP_DONE: _step_done,
    Kind.STEP_FAILED: _failed,
    Kind.STEP_UNDECIDED: _undecided,
    Kind.STEP_NOT_DONE: _step_not_done,
    Kind.STEP_UNKNOWN: _step_unknown,
    Kind.STEP_CHOSEN: _step_chosen,
    Kind.STEP_SKIPPED: _step_skipped,
    Kind.STEP_BLOCKED: _step_blocked,
    Kind.WAITING: _waiting,
    Kind.SIGNALLED: _signalled,
    Kind.CHILDREN_STARTED: _children_started,
    Kind.CHILDREN_RECALLED: _children_recalled,
    Kind.UNDO_DONE: _undo_done,
    Kind.UNDO_FAILED: _failed,
    Kind.UNDO_UNDECIDED: _undecided,
    Kind.SETTLE_DONE: _settle_done,
    Kind.SETTLE_FAILED: _failed,
    Kind.SETTLE_UNDECIDED: _undecided,
    Kind.LATE_ANSWER: _late_answer,
    Kind.REBUILT: _rebuilt,
    Kind.DOUBTED: _doubted,
    Kind.CANCEL_REQUESTED: _cancel_requested,
    Kind.RETRIED: _retried,
    Kind.REDONE: _redone,
    Kind.RESOLVED: _resolved,
    Kind.PAUSED: _paused,
    Kind.RESUMED: _paused,
    Kind.TURNING: _turning,
    Kind.COMPENSATING: _turned,
    Kind.SETTLING: _becomes(Status.SETTLING),
    Kind.PARKED: _parked,
    Kind.COMPLETED: _ends(Status.COMPLETED),
    Kind.COMPENSATED: _ends(Status.COMPENSATED),
    Kind.CANCELLED: _ends(Status.CANCELLED),
    Kind.ABORTED: _aborted,
}
