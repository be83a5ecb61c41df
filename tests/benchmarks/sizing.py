"""The tables of docs/sizing.md, computed. `python -m tests.benchmarks.sizing [var/bench.json]` prints them.

Without a file the figures are those that the page states; with one, those that `make bench` measured on your machine.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, fields
from math import ceil
from pathlib import Path
from statistics import median

from tests.benchmarks.scripts import ROOT

PAGE = ROOT / "docs" / "sizing.md"
RATES = (10, 1_000, 100_000)  # sagas a second
HALF = 0.5  # of what was measured may be used: the rest is for peaks, vacuum and the loss of a process
FEWEST = 2  # processes of each kind, so that one may die
CHILDREN = 2  # of the Celery worker that was measured


# the comparisons that measure them
KEYS = ("embedded", "celery", "limit", *(f"{what}-{kind}" for what in ("memory", "connections")
                                         for kind in ("embedded", "relay", "celery-child")))  # fmt: skip


class Missing(Exception):
    """The figures are not all there; the message says which, and how to measure them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What the bench measured. The names are those of its measurements, without `ours.`."""

    embedded: float  # sagas of three steps a second, one `sagas worker`
    celery: float  # the same, one relay and a Celery worker of two children
    bare_sql: float  # the same rows by bare SQL in batches: what the database can take
    memory_embedded: float  # megabytes
    memory_relay: float
    memory_celery_child: float
    connections_embedded: float
    connections_relay: float
    connections_celery_child: float

    @classmethod
    def of_bench(cls, path: Path) -> Figures:
        """Medians of a run of `make bench`, read from its JSON.

        Raises:
            Missing: it has not measured all of them, or is no such file.
        """
        found: dict[str, list[float]] = {}
        try:
            rounds = json.loads(path.read_text())["rounds"]
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise Missing(f"{path} is no result of `make bench`: {type(problem).__name__}: {problem}") from problem
        for each in rounds:
            for one in each:
                name = one["name"].removeprefix("ours.").removeprefix("limit.")
                rate = not name.startswith(("memory_", "connections_"))
                found.setdefault(name, []).append(one["per_second"] if rate else one["seconds"])
        if missing := [field.name for field in fields(cls) if field.name not in found]:
            raise Missing(
                f"{path} lacks {', '.join(missing)}: run `make bench` to its end, or measure what the tables need: "
                f"python -m tests.benchmarks.full {' '.join(KEYS)}"
            )
        return cls(**{field.name: median(found[field.name]) for field in fields(cls)})

    @classmethod
    def of_page(cls, text: str) -> Figures:
        """As the page states them, each beside the name of its measurement."""
        stated = re.findall(r"\| ([\d,.]+) \| `(?:ours|limit)\.(\w+)`", text)
        by_name = {name: float(value.replace(",", "")) for value, name in stated}
        return cls(**{field.name: by_name[field.name] for field in fields(cls)})


def processes(rate: float, capacity: float) -> int:
    """How many processes of a kind for so many sagas a second, where one works off `capacity` at full load."""
    return max(FEWEST, ceil(rate / (HALF * capacity)))


def row(figures: Figures, rate: int) -> str:
    """A line of the table: what so many sagas a second need."""
    workers = processes(rate, figures.embedded)
    relays, children = processes(rate, figures.celery), processes(rate, figures.celery / CHILDREN)
    databases = ceil(rate / (HALF * figures.bare_sql))
    cells = (
        f"{rate:,}", f"{databases:,}",
        f"{workers:,}", _size(workers * figures.memory_embedded), f"{workers * figures.connections_embedded:,.0f}",
        f"{relays:,} + {children:,}", _size(relays * figures.memory_relay + children * figures.memory_celery_child),
        f"{relays * figures.connections_relay + children * figures.connections_celery_child:,.0f}",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _size(megabytes: float) -> str:
    return f"{megabytes:,.0f} MB" if megabytes < 1000 else f"{megabytes / 1000:,.1f} GB"


def rows(figures: Figures) -> list[str]:
    """All lines of the table."""
    return [row(figures, rate) for rate in RATES]


def bodies(rate: float, steps: int, seconds: float) -> int:
    """How many bodies run at the same time (Little's law)."""
    return ceil(rate * steps * seconds)


if __name__ == "__main__":
    try:
        figures = Figures.of_bench(Path(sys.argv[1])) if len(sys.argv) > 1 else Figures.of_page(PAGE.read_text())
    except Missing as problem:
        sys.exit(str(problem))
    print(*(f"{field.name}: {getattr(figures, field.name):,.0f}" for field in fields(figures)), sep="\n")
    print(*rows(figures), sep="\n")
