"""An application and its worker after very many steps: `make soak`, and `STEPS=` says how many."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psycopg
import pytest

from sagas.testing.processes import ProcessGroup
from tests.integration.test_flat import THREADS, looks

STEPS = int(os.environ.get("STEPS", "200000"))
EACH = 3  # steps of a saga
MOMENTS = (0.1, 0.55, 1.0)  # of the whole, when it is looked at
MORE_MEMORY = 1.05
MOST_OUTBOX = 24 * 1024 * 1024  # bytes, of a table through which everything goes
MOST_DEAD = 60_000  # versions of rows; autovacuum comes once a minute

pytestmark = [
    pytest.mark.full,
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]


@pytest.mark.parametrize("kind", ["django", "sqlalchemy"])
def test_nothing_is_left_behind(kind: str, fresh_database: str, process_group: ProcessGroup) -> None:
    """Memory and connections stay as they were, the outbox is empty and small, no session is idle in a transaction."""
    counts = [int(moment * STEPS / EACH) // 100 * 100 for moment in MOMENTS]
    seen = looks(kind, counts, fresh_database, process_group)
    for look in seen:
        print(f"{kind}: {look}", flush=True)
    first = seen[0]
    assert seen[-1]["log"] == counts[-1] * EACH
    for look in seen[1:]:
        assert look["memory"] < first["memory"] * MORE_MEMORY
        assert look["objects"] < first["objects"] * MORE_MEMORY
        assert look["connections"] <= first["connections"] + THREADS  # a pool may not have met its peak before
        assert look["sessions"] <= first["sessions"] + 1
        assert look["outbox"] < MOST_OUTBOX
        assert look["dead"] < MOST_DEAD
    assert [(look["left"], look["idle_in_transaction"]) for look in seen] == [(0, 0)] * len(seen)
    _vacuum_leaves_nothing(fresh_database)


def _vacuum_leaves_nothing(url: str) -> None:
    """Nobody holds back vacuum: when it has come, there are no dead rows in the outbox."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum sagas_outbox")
        row = connection.execute(
            "select pg_stat_get_dead_tuples('sagas_outbox'::regclass), pg_relation_size('sagas_outbox')"
        ).fetchone()
        assert row == (0, 0), f"{Path(__file__).stem}: after vacuum {row}"
