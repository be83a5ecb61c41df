"""Ours: a business transaction of two inserts, with and without `start()` in it, by turns.

`python -m tests.benchmarks.ours_start COUNT` prints a line for each. Blocks of both alternate, so that a
machine that is slow for a second is slow for both, and the median block counts for all of its kind: one
commit that waits half a second for the disk would decide everything otherwise.
"""

from __future__ import annotations

import sys
import time
from statistics import median

from tests.benchmarks.ours import business, clear
from tests.benchmarks.report import Measurement

BLOCK = 25  # transactions
WITH, WITHOUT = "ours.with_start", "django.without_start"


def main(count: int) -> None:
    """Run `count` transactions of each kind, rounded up to whole blocks."""
    for saga in (True, False) * 5:
        business(0, saga=saga)  # connections and plans are not what is measured
    blocks = -(-count // BLOCK)
    seconds: dict[str, list[float]] = {WITH: [], WITHOUT: []}
    for block in range(blocks):
        for name in (WITH, WITHOUT) if block % 2 else (WITHOUT, WITH):
            begun = time.monotonic()
            for number in range(block * BLOCK, (block + 1) * BLOCK):
                business(number, saga=name == WITH)
            seconds[name].append(time.monotonic() - begun)
    clear()
    for name, each in seconds.items():
        print(Measurement(name=name, count=blocks * BLOCK, seconds=median(each) * blocks).line())


if __name__ == "__main__":
    main(int(sys.argv[1]))
