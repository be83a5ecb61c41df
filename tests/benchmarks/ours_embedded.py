"""Ours: a backlog of sagas and one embedded worker. `python -m tests.benchmarks.ours_embedded COUNT SECONDS`."""

from __future__ import annotations

import sys

from tests.benchmarks.ours import EMBEDDED_WORKER, drained

if __name__ == "__main__":
    print(drained("ours.embedded", int(sys.argv[1]), float(sys.argv[2]), *EMBEDDED_WORKER).line())
