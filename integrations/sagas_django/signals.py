"""Django signals for what happened to sagas, sent after the commit, by the process that recorded it.

    @receiver(saga_parked)
    def page(sender, happening, **kwargs): ...

`sender` is the saga class, `happening` a `sagas.hooks.Happening`. They are sent at most once, in a thread of their own:
see docs/hooks.md.
"""

from __future__ import annotations

import logging
from typing import Final

from django.db import connections
from django.dispatch import Signal

from sagas import hooks
from sagas.errors import UnknownSaga
from sagas.events import Kind
from sagas.hooks import Happening
from sagas.registry import registry

log = logging.getLogger("sagas.hooks")

saga_completed: Final = Signal()
saga_compensated: Final = Signal()
saga_cancelled: Final = Signal()
saga_aborted: Final = Signal()
saga_parked: Final = Signal()
saga_compensating: Final = Signal()  # it turns back
step_failed: Final = Signal()  # `happening.failures` says how often by now
undo_failed: Final = Signal()
late_answer: Final = Signal()

SIGNALS: Final = {
    Kind.COMPLETED: saga_completed, Kind.COMPENSATED: saga_compensated, Kind.CANCELLED: saga_cancelled,
    Kind.ABORTED: saga_aborted, Kind.PARKED: saga_parked, Kind.COMPENSATING: saga_compensating,
    Kind.STEP_FAILED: step_failed, Kind.UNDO_FAILED: undo_failed, Kind.LATE_ANSWER: late_answer,
}  # fmt: skip


def connect() -> None:
    """Have signals sent; called when Django is ready."""
    if not any(each.callback is _send for each in hooks.listeners()):
        hooks.on(*SIGNALS, times=None, when=lambda kind: SIGNALS[kind].has_listeners())(_send)


def _send(happening: Happening) -> None:
    signal = SIGNALS[happening.kind]
    try:
        sender = registry.get(happening.name, happening.version)
    except UnknownSaga:
        return
    try:
        for receiver, answer in signal.send_robust(sender=sender, happening=happening):
            if isinstance(answer, Exception):
                log.error(
                    "the receiver %s failed, told that saga %s %s (key %r): %s", receiver, happening.name,
                    happening.saga_id, happening.key, happening.kind, exc_info=answer,
                )  # fmt: skip
    finally:
        if hooks.in_own_thread():
            connections.close_all()
