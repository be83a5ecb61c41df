"""Draw the curves of `make bench-growth`. Run by the peers' Python, which has matplotlib: `picture_growth.py JSON SVG`.

A row for each curve: on the left its throughput against its first point, with every round as a dot and the floor as a
line; on the right the p99 of each kind of statement.
"""

from __future__ import annotations

import json
import sys
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot
from matplotlib.axes import Axes

BLUE, RED, GREY = "#4477aa", "#cc3311", "#bbbbbb"
COLOURS = {"start": "#228833", "claim": "#ccbb44", "begin": "#4477aa", "record": "#aa3377"}
Points = dict[str, list[Any]]  # amount -> one measurement a round


def main(source: str, target: str) -> None:
    """Small multiples: whoever looks compares the heights on the left with the line of the floor."""
    with open(source, encoding="utf-8") as file:
        told = json.load(file)
    curves = [(one, told["found"][one["key"]]) for one in told["curves"] if told["found"].get(one["key"])]
    rows = len(curves) + bool(told["workers"])
    figure, grid = pyplot.subplots(max(rows, 1), 2, figsize=(11, 2.6 * max(rows, 1) + 0.6), squeeze=False)
    for (curve, points), (left, right) in zip(curves, grid, strict=False):
        _ratios(left, points, "per_second", curve["floor"])
        left.set_title(curve["what"], loc="left", fontsize=10)
        _times(right, points)
    if told["workers"]:
        left, right = grid[-1]
        _ratios(left, told["workers"], None, None)
        left.set_title("worker processes over one backlog", loc="left", fontsize=10)
        right.axis("off")
    figure.suptitle(f"{told['rounds']} rounds, up to {told['size']:,} sagas; ratios to the first point", fontsize=11)
    figure.tight_layout()
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        figure.savefig(target)


def _ratios(axes: Axes, points: Points, field: str | None, floor: float | None) -> None:
    rates = {amount: [each[field] if field else each for each in rounds] for amount, rounds in points.items()}
    first = next(iter(rates.values()))
    ratios = [[a / b for a, b in zip(each, first, strict=False)] for each in rates.values()]
    for place, each in enumerate(ratios):
        axes.plot([place] * len(each), each, ".", color=GREY)
    axes.plot(range(len(ratios)), [median(each) for each in ratios], "o-", color=BLUE)
    for place, each in enumerate(rates.values()):
        axes.annotate(
            f"{median(each):,.0f}/s", (place, 0.04), xycoords=("data", "axes fraction"), ha="center", fontsize=8
        )
    if floor is not None:
        axes.axhline(floor, color=RED, linewidth=1, label=f"floor {floor:g}")
        axes.legend(loc="upper right", fontsize=8)
    axes.set_ylim(0, max(1.25, *(1.1 * max(each) for each in ratios)))
    axes.set_ylabel("throughput")
    _amounts(axes, points)


def _times(axes: Axes, points: Points) -> None:
    for name, colour in COLOURS.items():
        times = [median(each["p99"].get(name, 0.0) for each in rounds) * 1000 for rounds in points.values()]
        axes.plot(range(len(times)), times, "o-", color=colour, markersize=4, label=name)
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])  # room for the legend
    axes.set_ylabel("p99, ms")
    axes.legend(loc="upper left", fontsize=8, ncols=len(COLOURS))
    _amounts(axes, points)


def _amounts(axes: Axes, points: Points) -> None:
    """Amounts are steps, not a scale: they grow tenfold, or from nothing."""
    axes.set_xticks(range(len(points)), [f"{int(amount):,}" for amount in points])
    axes.set_xlim(-0.3, len(points) - 0.7)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
