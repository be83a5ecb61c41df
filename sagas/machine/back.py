"""The rules: undoing and settling."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from sagas.events import Direction, Failed, Kind, Lost, NotDone, Refused, Source, Succeeded, Undecided, Unstorable
from sagas.fold import track_of
from sagas.machine import look
from sagas.machine.draft import Draft


def back_succeeded(d: Draft, e: Succeeded) -> None:
    begun = e.attempt.deliveries if e.source is Source.BODY else e.attempt.lost
    d.answer(_BACK[e.attempt.direction].done, e.attempt, begun=begun, source=e.source)


def back_failed(d: Draft, e: Failed | Refused) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    if isinstance(e, Failed) and e.misfit:
        d.park_misfit(e)
        return
    undo = look.undo_of(planned)
    track = track_of(look.step_of(d.state, a.step), a.direction)
    delay = undo.retry.delay(track.failures + 1, a.jitter)
    closed = isinstance(e, Refused) or e.give_up
    d.answer(
        _BACK[a.direction].failed, a, begun=a.deliveries,
        unknown=undo.external and (isinstance(e, Failed) or a.lost > 0), closed=closed, error=e.error,
    )  # fmt: skip
    track = track_of(look.step_of(d.state, a.step), a.direction)
    if look.may_begin(planned, undo.retry.max_attempts, track, replace(a, deliveries=1)):
        d.again(delay)
    elif a.direction is Direction.UNDO and undo.has_resolve and isinstance(e, Failed):
        d.again(delay)  # ask whether it happened after all
    else:
        d.park(a, f"compensation failed: {e.error.message}")


def back_undecided(d: Draft, e: Undecided) -> None:
    a, planned = e.attempt, d.plan.by_name[e.attempt.step]
    retry = planned.retry if a.direction is Direction.SETTLE else look.undo_of(planned).retry
    delay = retry.delay(track_of(look.step_of(d.state, a.step), a.direction).asked + 1, a.jitter)
    unknown = a.lost > 0
    d.answer(_BACK[a.direction].undecided, a, begun=a.lost, unknown=unknown, error=e.error)
    track = track_of(look.step_of(d.state, a.step), a.direction)
    again = look.may_begin(planned, look.undo_of(planned).retry.max_attempts, track, replace(a, deliveries=1))
    if track.asked < retry.max_attempts or (a.direction is Direction.UNDO and again):
        d.again(delay)
    else:
        d.park(a, "resolve could not say what became of it")


def back_lost(d: Draft, e: Lost | NotDone) -> None:
    a = e.attempt
    crashed = isinstance(e, Lost) and e.crashed
    reason = f"{a.lost} workers died over it" if crashed else "no further attempt of the compensation may begin"
    d.park(a, reason, lost=a.lost, unknown=a.lost > 0)


def settle_unstorable(d: Draft, e: Unstorable) -> None:
    d.park(e.attempt, f"happened, but its result cannot be stored: {e.error.message}", lost=e.attempt.lost)


def settle_not_done(d: Draft, e: NotDone) -> None:
    d.answer(Kind.SETTLE_DONE, e.attempt, begun=e.attempt.lost, source=Source.RESOLVE)


class _Kinds(NamedTuple):
    done: Kind
    failed: Kind
    undecided: Kind


_BACK: Final = {
    Direction.UNDO: _Kinds(Kind.UNDO_DONE, Kind.UNDO_FAILED, Kind.UNDO_UNDECIDED),
    Direction.SETTLE: _Kinds(Kind.SETTLE_DONE, Kind.SETTLE_FAILED, Kind.SETTLE_UNDECIDED),
}
