"""Large payloads, which begin leaves where they are."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sagas.store.rows import Connection, Delivery
from sagas_outbox.queries import query, run

PACKAGE = "sagas.store"


def fetch(connection: Connection, saga_id: UUID, seq: int) -> bytes:
    """The data of one log entry."""
    row = run(connection, query(PACKAGE, "entry"), {"saga_id": saga_id, "seq": seq}).fetchone()
    assert row is not None  # entries are never deleted while their saga is open
    text: str = row[0]
    return text.encode()


def probes(connection: Connection, deliveries: Sequence[Delivery]) -> dict[UUID, dict[int, tuple[str, str]]]:
    """Of large payloads that are sealed: who sealed each, and the probe of the key, by saga and seq."""
    wanted = [(each.saga_id, seq) for each in deliveries for seq, data in each.history.items() if data is None]
    parameters = {"saga_ids": [saga_id for saga_id, _ in wanted], "seqs": [seq for _, seq in wanted]}
    found: dict[UUID, dict[int, tuple[str, str]]] = {}
    for saga_id, seq, by, probe in run(connection, query(PACKAGE, "probes"), parameters) if wanted else ():
        found.setdefault(saga_id, {})[seq] = by, probe
    return found
