"""What the outbox row of a request says, as the event that it stands for."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from sagas import machine
from sagas.events import (
    Abort,
    Cancel,
    Children,
    Event,
    LateAnswer,
    MarkDone,
    MarkNotDone,
    MarkUndone,
    Pause,
    Redo,
    Resume,
    RetryNow,
    Signal,
    SkipStep,
    UndoCompleted,
)
from sagas.store.rows import Delivery

log = logging.getLogger("sagas.worker")


class Payload(msgspec.Struct):
    """What the row of a request says."""

    actor: str = ""
    reason: str = ""
    step: str = ""
    seen: int | None = None
    value: msgspec.Raw = msgspec.Raw(b"null")  # of a signal, or the result of a step that is marked as done


REQUESTS: dict[str, Callable[[Payload], Event]] = {
    "cancel": lambda given: Cancel(given.actor, given.reason),
    "retry": lambda given: RetryNow(given.actor, given.reason),
    "abort": lambda given: Abort(given.actor, given.reason),
    "redo": lambda given: Redo(given.step, given.actor, given.reason, given.seen),
    "mark_done": lambda given: MarkDone(given.step, given.value, given.actor, given.reason, given.seen),
    "mark_not_done": lambda given: MarkNotDone(given.step, given.actor, given.reason, given.seen),
    "skip": lambda given: SkipStep(given.step, given.actor, given.reason, given.seen),
    "mark_undone": lambda given: MarkUndone(given.step, given.actor, given.reason, given.seen),
    "pause": lambda given: Pause(given.actor, given.reason),
    "resume": lambda given: Resume(given.actor, given.reason),
    "signal": lambda given: Signal(given.step, given.value, given.actor, given.reason),
    "late_answer": lambda given: LateAnswer(given.step),
    "children": lambda given: Children(step=given.step),  # and how they stand: see `sagas.family`
    "undo_completed": lambda given: UndoCompleted(given.actor, given.reason),
}


def request_of(delivery: Delivery) -> Event:
    """The event that a request row stands for."""
    if delivery.children is not None:
        return delivery.children
    if delivery.kind == "signal" and machine.finished(delivery.state):
        log.warning("%s: dropped, the saga has ended as %s", delivery.label, delivery.state.status)
    if delivery.kind == "late_answer":
        log.error("%s: what was undone happened after that; its undo is looked at again", delivery.label)
    try:
        payload = msgspec.json.decode(delivery.payload or "{}", type=Payload)
    except msgspec.MsgspecError:
        payload = Payload(reason="(what the request said cannot be read)")
    return REQUESTS[delivery.kind](payload)
