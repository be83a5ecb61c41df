"""What is reported of decisions when they are recorded: to the log, to the counters, to callbacks."""

from __future__ import annotations

import logging
from typing import Final

from sagas import hooks, machine
from sagas.events import Kind
from sagas.payloads import request_text
from sagas.store.rows import Recording
from sagas.tally import Tally

log = logging.getLogger("sagas.worker")

ALARMING: Final = frozenset(10 * 2**n for n in range(20))  # attempts after which a failing step is reported


def alarm(recording: Recording) -> None:
    """Log what somebody has to know of, before it is committed where local steps share a transaction."""
    delivery, state = recording.delivery, recording.decision.state
    if delivery.kind == "signal" and not recording.decision.entries:
        said = request_text(delivery.payload)
        log.warning("%s: the saga has ended, the signal is dropped: %.200s", delivery.label, said)
    for entry in recording.decision.entries:
        if entry.kind is Kind.STEP_FAILED and entry.attempt in ALARMING:
            log.error("%s: has failed %d times and is tried again; %s", delivery.label, entry.attempt, entry.data.error)
    if machine.parked(state) and not machine.parked(delivery.state):
        log.error(
            "%s: parked, a person has to decide: %s; look with `sagas show %s`, then retry, resolve, cancel or abort",
            delivery.label, state.error, delivery.saga_id,
        )  # fmt: skip


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
