"""Ours: one saga with very many items, and as many sagas of one step, each worked off by one embedded worker.

`python -m tests.benchmarks.ours_fan_out COUNT SECONDS` prints a line for each; the unit is an item, or a saga.
"""

from __future__ import annotations

import sys
import time
from uuid import uuid4

from sagas.testing.processes import ProcessGroup
from tests.benchmarks.ours import EMBEDDED_WORKER, OPEN, TOUCHED, asked, clear, drained, transaction, wait_until
from tests.benchmarks.report import Measurement
from tests.benchmarks.sagas import FanOut, NoopInput, Single
from tests.benchmarks.scripts import ROOT, NotRun


def fanned(count: int, seconds: float) -> Measurement:
    """One saga with so many items, from the first touch to its end."""
    clear()
    key = f"fan-out-{uuid4()}"
    with transaction.atomic():
        FanOut.start(NoopInput(count), key=key)
    with ProcessGroup() as group:
        process = group.start(EMBEDDED_WORKER, cwd=ROOT)
        wait_until(lambda: asked(TOUCHED) or not asked(OPEN), process, every=0.002, seconds=seconds)
        begun = time.monotonic()
        wait_until(lambda: not asked(OPEN), process, every=0.01, seconds=seconds)
        took = time.monotonic() - begun
        process.kill()
    if FanOut.get(key=key).status != "completed":
        raise NotRun(f"ours.fan_out: the saga ended as {FanOut.get(key=key).status}")
    return Measurement(name="ours.fan_out", count=count, seconds=took)


def main(count: int, seconds: float) -> None:
    """Measure both; sagas of one step have their starts counted, as those of the items are part of the fan-out."""
    singles = drained("ours.single", count, seconds, *EMBEDDED_WORKER,
                      start=lambda number, key: Single.start(NoopInput(number), key=key))  # fmt: skip
    print(fanned(count, seconds).line())
    starting = float(singles.notes["start_seconds"])
    print(Measurement(name="ours.single", count=count, seconds=singles.seconds + starting).line())


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
