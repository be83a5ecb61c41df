"""Idempotency keys: what tells the other side that two requests are one.

A key must be the same in every attempt, process and retry, so nothing volatile (attempt
number, time, worker) goes into it. A compensation is an effect of its own and has its own key.

A saga that another one starts has an id that follows from that one's, so that it is the same saga under the same keys
where a database that went back in time starts it again. Such an id is a UUID of version 8: first the time at which the
saga began that all came of, so that they lie together in an index; then the number of the run, so that the last one has
the greatest; then a hash. For children see `sagas_children_v1`.
"""

from __future__ import annotations

import hashlib
from typing import Final
from uuid import UUID

DERIVED: Final = 8  # version of an id that follows from another saga's
MOST_RUNS: Final = (1 << 24) - 1  # that are told apart by their number; after that by the hash alone


def idempotency_key(saga_id: UUID, step: str, direction: str = "do", generation: int = 0) -> str:
    """The key under which one effect of one saga is requested.

    Args:
        saga_id: the saga.
        step: name of the step.
        direction: "do" for the step, "undo" for its compensation.
        generation: 0; raised each time the compensation is deliberately asked for anew (settling).
    """
    return f"{saga_id}:{step}:{direction}:{generation}"


def id_of_next(former: UUID, run: int) -> UUID:
    """The id of the saga that goes on from another one.

    Args:
        former: the id of that one.
        run: the number of the new one; in a line of runs ids grow with it.
    """
    number, end = min(run, MOST_RUNS), hashlib.sha256(f"{former} {run}".encode()).hexdigest()[:12]
    return UUID(f"{former.hex[:12]}{DERIVED}{number >> 12:03x}8{number & 0xFFF:03x}{end}")
