"""After thousands of sagas an application and its worker hold no more than after the first ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sagas.testing.processes import ProcessGroup

ROOT = Path(__file__).resolve().parents[2]
THREADS = 4  # of the worker
SECONDS_EACH = 0.1  # for a saga, on a machine that is busy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]


def looks(kind: str, counts: list[int], url: str, processes: ProcessGroup) -> list[dict[str, Any]]:
    """Run the application in a process of its own; what it saw after each count."""
    program = processes.python(
        "-m", "tests.support.flat", kind, *map(str, counts), name=kind, cwd=ROOT,
        env={"DATABASE_URL": url, "PYTHONWARNINGS": "default"},
    )  # fmt: skip
    assert program.wait(60 + SECONDS_EACH * counts[-1]) == 0, processes.report()
    return [json.loads(line) for line in program.output().splitlines() if line.startswith("{")]


@pytest.mark.parametrize("kind", ["django", pytest.param("sqlalchemy", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("counts", "more"),
    [
        pytest.param([300, 1_000], 1.05, id="1000"),
        pytest.param([2_000, 10_000], 1.03, id="10000", marks=pytest.mark.full),
    ],
)
def test_nothing_grows(
    kind: str, counts: list[int], more: float, fresh_database: str, process_group: ProcessGroup
) -> None:
    """Memory, live objects, connections and sessions stay where they were; nothing is idle in a transaction."""
    before, after = looks(kind, counts, fresh_database, process_group)
    print(f"{kind}: {before}\n{' ' * len(kind)}  {after}")
    assert (before["sagas"], after["sagas"]) == tuple(counts)
    assert after["memory"] < before["memory"] * more
    assert after["objects"] < before["objects"] * more
    assert after["connections"] <= before["connections"] + THREADS  # a pool may not have met its peak before
    assert after["idle_in_transaction"] == 0
    assert after["sessions"] <= before["sessions"] + 1
    assert after["held"] <= 2
