"""How sagas are put into words on the command line. `sagas_django.wording` has the same words, translatable."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from sagas.events import OPERATIONS, Direction, Kind, Source
from sagas.states import Status, StepStatus

Words = Mapping[Any, Any]  # what is shown for each value: texts, or what becomes one


class Wording(Protocol):
    """A module like this one, in some language."""

    STATUS: Words
    STEP_STATUS: Words
    DIRECTION: Words
    SOURCE: Words
    KIND: Words
    REQUEST: Words

    def word(self, words: Words, value: str | None) -> str: ...
    def age(self, moment: datetime) -> str: ...
    def from_now(self, moment: datetime) -> str: ...
    def clock(self, moment: datetime, timespec: str = "milliseconds") -> str: ...
    def zone(self) -> str: ...
    def say(self, text: str, values: Mapping[str, str]) -> str: ...


STATUS: Words = {status: status.value for status in Status}
STEP_STATUS: Words = {
    StepStatus.NOT_DONE: "did not happen",
    **{status: status.value for status in StepStatus if "_" not in status.value},
}
DIRECTION: Words = {direction: direction.value for direction in Direction}
SOURCE: Words = {
    **{source: source.value for source in Source},
    Source.BODY: "the step itself",
    Source.DEDUPE: "the dedupe table",
    Source.OPERATOR: "an operator",
}
KIND: Words = {
    **{kind: kind.value.replace("_", " ") for kind in Kind},
    Kind.STEP_UNDECIDED: "resolve could not say",
    Kind.STEP_NOT_DONE: "step did not happen",
    Kind.STEP_UNKNOWN: "step given up, outcome unknown",
    Kind.STEP_BLOCKED: "waits for a lock",
    Kind.UNDO_DONE: "undone",
    Kind.UNDO_UNDECIDED: "resolve of the undo could not say",
    Kind.SETTLE_DONE: "settled",
    Kind.SETTLE_FAILED: "settling failed",
    Kind.SETTLE_UNDECIDED: "settling could not say",
    Kind.REBUILT: "rows made again",
    Kind.DOUBTED: "in doubt after a restore",
    Kind.RETRIED: "retry requested",
    Kind.REDONE: "redo requested",
    Kind.RESOLVED: "decided by an operator",
    Kind.CHILDREN_RECALLED: "children asked to turn back",
    Kind.TURNING: "turns back when the others have ended",
    Kind.COMPENSATING: "turned back",
    Kind.SETTLING: "settling begins",
}
REQUEST: Words = {name: name.replace("_", " ").replace("undone", "compensated") for name in (*OPERATIONS, "signal")} | {
    "children": "look at children",
    "undo_completed": "undo, with its parent",
}
SPANS: Final = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def word(words: Words, value: str | None) -> str:
    """A value in words; itself when a newer version wrote one that this version does not know."""
    return "" if value is None else str(words.get(value, value))


def span(length: timedelta) -> str:
    """A length of time that one takes in at a glance: two units at most. Negative lengths count as none."""
    seconds = max(length.total_seconds(), 0.0)
    if round(seconds * 1000) < 1000:
        return f"{round(seconds * 1000)} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for large, name, small, other in SPANS:
        if whole >= large:
            return f"{whole // large} {name} {whole % large // small} {other}"
    return f"{whole} s"


def age(moment: datetime) -> str:
    """How long ago a moment was."""
    return span(datetime.now(UTC) - moment)


def from_now(moment: datetime) -> str:
    """When a moment is, seen from now."""
    left = moment - datetime.now(UTC)
    return f"{span(-left)} ago" if left <= timedelta(0) else f"in {span(left)}"


def clock(moment: datetime, timespec: str = "milliseconds") -> str:
    """A moment in the time zone of this machine."""
    return moment.astimezone().replace(tzinfo=None).isoformat(" ", timespec)


def zone() -> str:
    """The time zone that `clock` uses."""
    return time.strftime("%Z")


def say(text: str, values: Mapping[str, str]) -> str:
    """A sentence with its blanks filled in."""
    return text % values
