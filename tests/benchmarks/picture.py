"""Draw the ratios of a bench as bars. Run by the peers' Python, which has matplotlib: `picture.py JSON SVG`."""

from __future__ import annotations

import json
import sys

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot


def main(source: str, target: str) -> None:
    """One bar a comparison, with a mark at its floor; rates only, since there more is better."""
    with open(source, encoding="utf-8") as file:
        found = json.load(file)["ratios"]
    rows = [one for one in found.values() if one["bound"] == "at least" and one["ratio"] is not None][::-1]
    figure, axes = pyplot.subplots(figsize=(9, 0.5 * len(rows) + 1.2))
    axes.barh([one["what"] for one in rows], [one["ratio"] for one in rows], color="#4477aa")
    axes.plot([one["floor"] for one in rows], range(len(rows)), "|", color="#cc3311", markersize=16, label="floor")
    axes.set_xscale("log")
    axes.set_xlabel("times as fast as the peer (logarithmic)")
    axes.axvline(1, color="grey", linewidth=0.8)
    if rows:
        axes.legend(loc="lower right")
    figure.tight_layout()
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        figure.savefig(target)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
