"""How many rows share one message: as many as keep a worker busy for a short while, never more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def pack(
    items: Iterable[T], *, work: Callable[[T], float | None], alone: Callable[[T], bool], target: float, most: int
) -> list[list[T]]:
    """Put items into groups of about `target` seconds of work, keeping their order.

    Args:
        items: what to group.
        work: seconds one item takes; None: not measured yet, so it travels alone.
        alone: whether an item travels alone in any case, such as one that killed its worker before.
        target: seconds of work in a group; an item that takes longer has a group to itself.
        most: most items in a group.
    """
    groups: list[list[T]] = []
    filling: list[T] = []
    filled = 0.0
    for item in items:
        seconds = None if alone(item) else work(item)
        if seconds is None or seconds >= target:
            groups.append([item])
            continue
        if filling and (filled + seconds > target or len(filling) >= most):
            groups.append(filling)
            filling, filled = [], 0.0
        filling.append(item)
        filled += seconds
    if filling:
        groups.append(filling)
    return groups


def short_first(groups: Iterable[list[T]], *, work: Callable[[T], float], target: float) -> list[list[T]]:
    """Groups in the order in which they go to a broker: those of short items first, otherwise as they were.

    What is short waits for nothing that is long, and what is long hardly notices what is short.

    Args:
        groups: from `pack`.
        work: seconds one item takes.
        target: seconds of work in a group; an item that takes as long is not short.
    """
    return sorted(groups, key=lambda group: work(group[0]) >= target)
