"""What the saga tables say while the demo runs, read on a connection of its own."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import psycopg

CLAIMED = "SELECT DISTINCT saga_id FROM sagas_outbox WHERE holder LIKE 'relay:%%' AND deliveries = 0"
UNBEGUN = CLAIMED + " AND id = ANY(%s)"
HELD_BESIDE = """
SELECT DISTINCT beside.saga_id
FROM sagas_saga AS saga
JOIN sagas_outbox AS held ON held.saga_id = saga.id AND held.holder LIKE 'worker:%%'
JOIN sagas_outbox AS beside ON beside.holder = held.holder
WHERE saga.key = %s
"""
BY_STATUS = "SELECT status, count(*) FROM sagas_saga GROUP BY status ORDER BY status"
PARKED = "SELECT count(*) FROM sagas_saga WHERE parked_from IS NOT NULL"
ENDED = "SELECT count(*) FROM sagas_saga WHERE finished_at IS NOT NULL"
ENDED_OF = ENDED + " AND id = ANY(%s)"


class SagaTables:
    """Read-only view of one database.

    Args:
        url: of the shop's database.
    """

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, connect_timeout=10)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def claimed(self) -> frozenset[UUID]:
        """Sagas with a row that a relay holds and no worker has begun."""
        return self._sagas(CLAIMED)

    def unbegun(self, rows: Iterable[int]) -> frozenset[UUID]:
        """Sagas of those of these outbox rows that a relay published and no worker has begun."""
        return self._sagas(UNBEGUN, list(rows))

    def held_beside(self, key: str) -> frozenset[UUID]:
        """The saga with this key, if a worker holds it, and all others that the same worker holds."""
        return self._sagas(HELD_BESIDE, key)

    def by_status(self) -> dict[str, int]:
        """How many sagas are in each state."""
        return dict(self._connection.execute(BY_STATUS).fetchall())

    def parked(self) -> int:
        """How many sagas wait for a person."""
        return self._count(PARKED)

    def ended(self) -> int:
        """How many sagas have ended."""
        return self._count(ENDED)

    def ended_of(self, sagas: Iterable[UUID]) -> int:
        """How many of these sagas have ended."""
        return self._count(ENDED_OF, list(sagas))

    def _sagas(self, query: str, *values: object) -> frozenset[UUID]:
        return frozenset(row[0] for row in self._connection.execute(query, values))

    def _count(self, query: str, *values: object) -> int:
        row = self._connection.execute(query, values).fetchone()
        assert row is not None
        return int(row[0])
