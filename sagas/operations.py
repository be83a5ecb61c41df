"""What people ask of a saga, as events of the state machine. `sagas.events` has the others, and passes these on."""

from __future__ import annotations

from typing import get_args

import msgspec


class Cancel(msgspec.Struct, frozen=True):
    """A caller asks to undo the saga."""

    actor: str = ""
    reason: str = ""


class RetryNow(msgspec.Struct, frozen=True):
    """An operator says: try again now."""

    actor: str = ""
    reason: str = ""


class Abort(msgspec.Struct, frozen=True):
    """An operator closes a parked saga as it is."""

    actor: str = ""
    reason: str = ""


class Redo(msgspec.Struct, frozen=True):
    """An operator says: forget what is known about this step of a parked saga, and do it under a new key."""

    step: str
    actor: str = ""
    reason: str = ""
    seen: int | None = None  # seq of the saga as the operator saw it; None: whatever it is


class MarkDone(msgspec.Struct, frozen=True):
    """An operator says: this step, over which the saga parked, did happen, and this is its result."""

    step: str
    result: msgspec.Raw = msgspec.Raw(b"null")
    actor: str = ""
    reason: str = ""
    seen: int | None = None  # seq of the saga as the operator saw it; None: whatever it is


class MarkNotDone(msgspec.Struct, frozen=True):
    """An operator says: the step over which the saga parked did not happen, so turn back without it."""

    step: str
    actor: str = ""
    reason: str = ""
    seen: int | None = None  # seq of the saga as the operator saw it; None: whatever it is


class SkipStep(msgspec.Struct, frozen=True):
    """An operator says: go on without the step over which the saga parked."""

    step: str
    actor: str = ""
    reason: str = ""
    seen: int | None = None  # seq of the saga as the operator saw it; None: whatever it is


class MarkUndone(msgspec.Struct, frozen=True):
    """An operator says: the step whose compensation parked was undone by hand."""

    step: str
    actor: str = ""
    reason: str = ""
    seen: int | None = None  # seq of the saga as the operator saw it; None: whatever it is


class Pause(msgspec.Struct, frozen=True):
    """An operator says: begin nothing more of this saga for now."""

    actor: str = ""
    reason: str = ""


class Resume(msgspec.Struct, frozen=True):
    """An operator says: go on with a paused saga."""

    actor: str = ""
    reason: str = ""


Resolution = MarkDone | MarkNotDone | SkipStep | MarkUndone
Operation = Cancel | RetryNow | Abort | Redo | Resolution | Pause | Resume
OPERATIONS: dict[str, type[Operation]] = {  # by outbox kind
    "cancel": Cancel, "retry": RetryNow, "abort": Abort, "redo": Redo, "pause": Pause, "resume": Resume,
    "mark_done": MarkDone, "mark_not_done": MarkNotDone, "skip": SkipStep, "mark_undone": MarkUndone,
}  # fmt: skip
RESOLUTIONS = frozenset(kind for kind, event in OPERATIONS.items() if event in get_args(Resolution))
AS_SEEN = frozenset(kind for kind, event in OPERATIONS.items() if "seen" in event.__struct_fields__)
ABOUT_A_STEP = frozenset(kind for kind, event in OPERATIONS.items() if "step" in event.__struct_fields__)
