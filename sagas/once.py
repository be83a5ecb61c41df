"""A request that is sent twice counts once: the nonce of a form is an idempotency key in the dedupe table."""

from __future__ import annotations

from uuid import UUID

import msgspec

from sagas.ports import Work
from sagas_outbox.queries import query


def first_time(saga_id: UUID, nonce: UUID) -> Work[bool]:
    """Whether this nonce is new for the saga; for a caller to `run` in the transaction of the request itself.

    Of two transactions with one nonce the second waits for the first, and is told no if that one commits.

    Args:
        saga_id: what the request is about.
        nonce: made for one form, or one message; the same when that is sent again.
    """
    wanted = {"key": key_of(saga_id, nonce), "saga_id": str(saga_id)}
    taken = yield query("sagas.store", "once"), msgspec.json.encode(wanted).decode()
    return taken is not None


def key_of(saga_id: UUID, nonce: UUID) -> str:
    """The key in the dedupe table by which a nonce is known."""
    return f"{saga_id}:request:{nonce}"
