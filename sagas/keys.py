"""Idempotency keys: what tells the other side that two requests are one.

A key must be the same in every attempt, process and retry, so nothing volatile (attempt
number, time, worker) goes into it. A compensation is an effect of its own and has its own key.
"""

from __future__ import annotations

from uuid import UUID


def idempotency_key(saga_id: UUID, step: str, direction: str = "do", generation: int = 0) -> str:
    """The key under which one effect of one saga is requested.

    Args:
        saga_id: the saga.
        step: name of the step.
        direction: "do" for the step, "undo" for its compensation.
        generation: 0; raised each time the compensation is deliberately asked for anew (settling).
    """
    return f"{saga_id}:{step}:{direction}:{generation}"
