"""Going on: the same row, begun again for the next step in the commit that recorded the one before."""

from __future__ import annotations

from msgspec import Raw, UnsetType
from msgspec.structs import replace

from sagas.events import Decision
from sagas.fold import UNTOUCHED, track_of
from sagas.payloads import LARGE
from sagas.store import rows
from sagas.store.rows import Delivery, Recording
from sagas.takeover import NOTHING


def next_delivery(done: Recording, sent_at: float) -> Delivery:
    """The same row, begun again for the next step in the commit that recorded the one before."""
    delivery, decision = done.delivery, done.decision
    row = decision.rows[0]
    assert delivery.attempt is not None
    now = delivery.attempt.now + sent_at - delivery.begun_at
    return replace(
        delivery, token=delivery.token + 1, queue=row.queue, state=decision.state, memory=NOTHING, late=None,
        progress=None,
        attempt=replace(
            delivery.attempt, step=row.step, direction=row.direction, deliveries=1, now=now,
            first_begun_at=row.first_begun_at or now,
        ),
        begun_at=sent_at, leased_at=sent_at if done.renews else delivery.leased_at,
        history=_history(delivery, decision),
    )  # fmt: skip


def has_loaded(delivery: Delivery, decision: Decision) -> bool:
    """Whether all that is looked at next is here. A signal that another row recorded meanwhile, and perhaps took the
    saga past its wait with, is not in what begin has loaded: begin again, and load it. Of work
    that is in doubt it loads what the dedupe table knows."""
    row = decision.rows[0]
    if track_of(decision.state.steps.get(row.step, UNTOUCHED), row.direction).doubted:
        return False
    history, before = delivery.history, delivery.state.seq  # what this decision brings comes after that
    return all((seq := step.result) is None or seq in history or seq > before for step in decision.state.steps.values())


def _history(delivery: Delivery, decision: Decision) -> dict[int, bytes | None]:
    """What was known, and what was recorded now; what is large is loaded again by whoever asks for it."""
    history = delivery.history.copy()
    for entry in decision.entries:
        if rows.is_result(entry):
            history[entry.seq] = None if weight(entry.data.result) > LARGE else rows.facts_bytes(entry)
    return history


def weight(result: Raw | UnsetType) -> int:
    """Bytes of a stored result."""
    return len(memoryview(result)) if isinstance(result, Raw) else 0


def brings_much(recording: Recording) -> bool:
    """Whether a large result is recorded with it."""
    return any(weight(entry.data.result) > LARGE for entry in recording.decision.entries)
