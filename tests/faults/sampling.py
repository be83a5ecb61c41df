"""What of many cases runs by default: a sample drawn by a seed. The others are marked `full`."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

SEED = int(os.environ.get("SAGAS_SEED") or 1)  # the same for everybody, unless another is asked for
CASES: dict[str, tuple[str, int]] = {}  # by test: what its cases are called, and how many there are

Case = tuple[Any, ...]


def sampled(
    test: str, called: str, cases: Sequence[Case], size: int, *, always: Callable[[Case], bool] = lambda case: False
) -> Any:  # fmt: skip
    """All cases as parameters of a test; those outside of the sample are marked `full`.

    Args:
        test: name of the test.
        called: what to call them in the summary.
        cases: the values of each.
        size: how many run by default, drawn by the seed.
        always: which run by default in any case.
    """
    CASES[test] = called, len(cases)
    others = [case for case in cases if not always(case)]
    chosen = drawn(test, others, size)
    left_out = [each for each in others if each not in chosen]
    return [pytest.param(*case, marks=[pytest.mark.full] if case in left_out else []) for case in cases]


def drawn(test: str, cases: Sequence[Case], size: int) -> list[Case]:
    """So many of the cases, drawn by the seed."""
    return random.Random(f"{SEED} {test}").sample(cases, min(size, len(cases)))


def summary(ran: Counter[tuple[str, int]]) -> str:
    """How many cases ran, and how to draw the same sample again."""
    counts = ", ".join(f"{count} of {total} {called}" for (called, total), count in sorted(ran.items()))
    return f"faults: {counts}; SAGAS_SEED={SEED}"
