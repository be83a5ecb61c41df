"""Named points on the way of a row, where a test can stop the process.

The engine calls `reached` and goes on; nothing listens unless a test process installed a listener.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class Point(StrEnum):
    """The closed list of points."""

    AFTER_CLAIM = "relay.after_claim"
    AFTER_PUBLISH = "relay.after_publish"
    AFTER_MESSAGES_CLAIMED = "messages.after_claim"
    AFTER_MESSAGES_SENT = "messages.after_send"
    AFTER_BEGIN = "worker.after_begin"
    AFTER_LOCK = "worker.after_lock"
    BEFORE_BODY = "worker.before_body"
    AFTER_BODY = "worker.after_body"
    BEFORE_RECORD = "worker.before_record"
    AFTER_RECORD = "worker.after_record"
    BETWEEN_STEPS = "worker.between_steps"


Listener = Callable[[Point, str], None]
_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Call `listener(point, detail)` at every point of this process; None: no longer."""
    global _listener
    _listener = listener


def reached(point: Point, detail: str | Callable[[], str] = "") -> None:
    """Note that this process is at a point; `detail` names the work, such as ``charge:undo``, or makes that name."""
    if _listener is not None:
        _listener(point, detail if isinstance(detail, str) else detail())
