"""Sagas that are started with a decision: one that goes on from its saga, and children; and what becomes of those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from sagas.events import Call
from sagas.states import Status

if TYPE_CHECKING:
    from sagas.store.rows import Recording


def started(batch: Sequence[Recording]) -> dict[str, list[Any]]:
    """Sagas that are started with a decision, and what becomes of those that were."""
    lines = [(r.delivery.id, _following(r)) for r in batch if r.decision.next]
    lines += [(r.delivery.id, _called(r, call)) for r in batch for call in r.decision.calls]
    return {"next_ids": [id for id, _ in lines], "nexts": [request for _, request in lines]}


def _called(r: Recording, call: Call) -> dict[str, Any]:
    """What a saga does about its children."""
    said = {
        "do": call.do, "parent": r.delivery.saga_id, "step": call.step, "branch": branch(call.step, call.generation),
        "queue": r.delivery.queue, "ended_as": [Status.COMPLETED], "reason": _why(r),
    }  # fmt: skip
    return {**msgspec.json.decode(call.request, type=dict[str, Raw]), **said}


def _why(r: Recording) -> str:
    reason = next((entry.data.reason for entry in r.decision.entries if entry.data.reason), "it turns back")
    return f"of saga {r.delivery.name} {r.delivery.saga_id} (key {r.delivery.key!r}): {reason}"


def _following(r: Recording) -> dict[str, Any]:
    """The start of the saga that takes over from this one, with the signals that nobody waited for."""
    assert r.decision.next is not None
    request = msgspec.json.decode(r.decision.next.request, type=dict[str, Raw])
    signals = sorted(seq for step in r.decision.state.steps.values() for seq in step.signals)
    return {**request, "continues": r.delivery.saga_id, "carry": signals}


def branch(step: str, generation: int) -> str:
    """What ties children to a step of their parent, and to one generation of it."""
    return f"{step}~{generation}" if generation else step
