"""What is reported of decisions when they are recorded: to the log, to the counters, to callbacks."""

from __future__ import annotations

import logging
import re
from typing import Final

from sagas import hooks, machine
from sagas.events import OPERATIONS, Entry, ErrorText, Kind
from sagas.payloads import request_text
from sagas.store.rows import Delivery, Recording
from sagas.tally import Tally
from sagas.typed import typed

log = logging.getLogger("sagas.worker")

TURNS: Final = frozenset({Kind.COMPENSATING, Kind.TURNING})
FRAME: Final = re.compile(r'\n  File "[^"\n]*", line \d+, in [\w.<>]+(?=\n)')  # of a traceback
ALARMING: Final = frozenset(10 * 2**n for n in range(20))  # attempts after which a failing step is reported


def alarm(recording: Recording) -> None:
    """Log what somebody has to know of, before it is committed where local steps share a transaction."""
    delivery, state = recording.delivery, recording.decision.state
    if delivery.kind == "signal" and not recording.decision.entries:
        said = request_text(delivery.payload)
        log.warning("%s: the saga has ended, the signal is dropped: %.200s", delivery.label, said)
    elif delivery.kind in OPERATIONS and machine.finished(delivery.state):
        # of a child its parent asks it, and looks afterwards how it has ended
        level = logging.INFO if delivery.tied else logging.WARNING
        log.log(level, "%s: the saga has ended, the %s comes too late", delivery.label, delivery.kind)
    for entry in recording.decision.entries:
        if entry.data.error is not None:
            _failed(delivery, entry, entry.data.error)
        elif entry.kind in TURNS and entry.step is not None and not _is_refused(recording):
            log.log(
                logging.INFO if _is_asked_for(recording, entry.step) else logging.ERROR,
                "%s: turns back, what was done is undone; `%s` says why",
                delivery.label, typed(f"show {delivery.saga_id}"),
            )  # fmt: skip
    if machine.parked(state) and not machine.parked(delivery.state):
        log.error(
            "%s: parked, a person has to decide: %s; look with `%s`, then retry, resolve, cancel or abort",
            delivery.label, state.error, typed(f"show {delivery.saga_id}"),
        )  # fmt: skip


def _failed(delivery: Delivery, entry: Entry, error: ErrorText) -> None:
    """Which error it was and where: its text may hold anything, and is in the saga's log. A refusal is an answer."""
    if entry.data.refused:
        log.info("%s: refused", delivery.label)
    elif entry.kind is Kind.STEP_FAILED and entry.attempt in ALARMING:
        log.error("%s: has failed %d times and is tried again: %s", delivery.label, entry.attempt, error.type)
    else:
        what, where = entry.kind.value.replace("_", " "), "".join(FRAME.findall(error.traceback))
        log.warning("%s: %s, attempt %d: %s%s", delivery.label, what, entry.attempt, error.type, where)


def _is_refused(recording: Recording) -> bool:
    return any(entry.data.refused for entry in recording.decision.entries)


def _is_asked_for(recording: Recording, step: str) -> bool:
    """Whether a saga turns back without anything that failed: somebody asked for it (a cancel, an operator's word), or
    its author did (a deadline, the end of a wait)."""
    attempt = recording.delivery.attempt
    if machine.turning(recording.decision.state, None if attempt is None else attempt.now):
        return True
    if any(entry.data.error is not None for entry in recording.decision.entries):
        return False
    return attempt is None or machine.step_of(recording.delivery.state, step).until is not None


def committed(written: list[Recording], tally: Tally) -> None:
    """Count what is committed, and tell callbacks of it; the list is empty afterwards. Never raises."""
    tally.recorded((each.delivery.name, each.delivery.state, each.decision.entries) for each in written)
    if hooks.listeners():
        for each in written:
            try:
                hooks.committed(each.delivery, each.delivery.state, each.decision)
            except Exception:
                log.exception("%s: is recorded; what is told of it could not be", each.delivery.label)
    written.clear()
