"""From measurements to ratios, a table and JSON. Pure: nothing here runs or reads anything.

A ratio is taken inside a round, where both sides ran within seconds of each other, and the median of
those ratios counts: on a shared machine the rounds differ more than the two sides of one round do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import median
from typing import Any

FIELDS = frozenset({"name", "count", "seconds", "per_second"})  # of a JSON line; what else it holds is kept as notes


class Bound(StrEnum):
    """Which side of its floor a ratio has to be on."""

    AT_LEAST = "at least"  # ratio of rates: ours / theirs
    AT_MOST = "at most"  # ratio of times: ours / theirs


class Unit(StrEnum):
    """How figures are shown. A measurement of one thing holds its size where others have seconds."""

    RATE = "/s"
    TIME = "ms"
    MEMORY = "MB"
    PIECES = "pcs"

    def show(self, per_second: float | None) -> str:
        """A figure with its unit; a dash for none."""
        if per_second is None:
            return "-"
        if self is Unit.RATE:
            return f"{per_second:.0f} {self}"
        size = 1 / per_second * (1000 if self is Unit.TIME else 1)
        return f"{size:.1f} {self}" if size < 100 and self is not Unit.PIECES else f"{size:.0f} {self}"


class Verdict(StrEnum):
    """What became of one comparison."""

    OK = "ok"
    MISSED = "MISSED"
    NOT_RUN = "NOT RUN"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One measured run of one side."""

    name: str
    count: int  # units of work done; at least 1
    seconds: float  # what they took; above 0
    notes: Mapping[str, Any] = field(default_factory=dict)  # versions, settings: for the reader of the JSON

    def __post_init__(self) -> None:
        if self.count < 1 or not self.seconds > 0:
            raise ValueError(f"{self.name}: {self.count} units in {self.seconds} s is no measurement")

    @property
    def per_second(self) -> float:
        """Units of work a second."""
        return self.count / self.seconds

    @classmethod
    def from_line(cls, line: str) -> Measurement:
        """Read one JSON line as `line()` writes it.

        Raises:
            ValueError: the line is not JSON, lacks a field or holds no measurement.
        """
        try:
            data = json.loads(line)
            notes = {key: value for key, value in data.items() if key not in FIELDS}
            return cls(name=str(data["name"]), count=int(data["count"]), seconds=float(data["seconds"]), notes=notes)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a measurement: {line!r}") from error

    def line(self) -> str:
        """This measurement as the one JSON line that a benchmark script prints."""
        return json.dumps({**self.notes, **self.as_dict()})

    def as_dict(self) -> dict[str, Any]:
        """The fields of the JSON line, without the notes."""
        return {
            "name": self.name,
            "count": self.count,
            "seconds": round(self.seconds, 6),
            "per_second": round(self.per_second, 2),
        }


Round = Mapping[str, Measurement]  # the measurements of one round by name


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two measurements that belong side by side, and the ratio that is asked of them."""

    key: str
    what: str  # the row's text in the table
    ours: str  # name of our measurement
    peer: str  # name of theirs
    bound: Bound
    floor: float
    unit: Unit = Unit.RATE
    starts: bool = False  # whether the time that our `start()` calls took before the clock ran counts too

    def with_starts(self) -> Comparison:
        """The same for a peer that starts its work within its clock. No floor but that we do not lose."""
        what, _, peer = self.what.partition(" : ")
        what = f"{what}, with our starts : {peer}"
        return replace(self, key=f"{self.key}-starts", what=what, floor=1, starts=True)

    def own(self, measured: Measurement) -> Measurement:
        """Our measurement, as this comparison counts it."""
        if not self.starts:
            return measured
        return replace(measured, seconds=measured.seconds + float(measured.notes["start_seconds"]))

    def ratio(self, ours: Measurement, peer: Measurement) -> float:
        """Ours against theirs, in rates or in times as the bound has it."""
        rates = ours.per_second / peer.per_second
        return rates if self.bound is Bound.AT_LEAST else 1 / rates

    def holds(self, ratio: float) -> bool:
        """Whether a ratio is on the right side of the floor."""
        return ratio >= self.floor if self.bound is Bound.AT_LEAST else ratio <= self.floor


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What all rounds said of one comparison. A side without a figure did not run."""

    comparison: Comparison
    ours: float | None  # median rate
    peer: float | None
    ratios: tuple[float, ...] = ()  # one a round; empty unless both sides ran in every round
    problem: str = ""  # why it did not run

    @property
    def ratio(self) -> float | None:
        """Median of the rounds' ratios, or None if it was not run."""
        return median(self.ratios) if self.ratios else None

    @property
    def verdict(self) -> Verdict:
        """Whether the floor was held, missed or never tried."""
        if self.ratio is None:
            return Verdict.NOT_RUN
        return Verdict.OK if self.comparison.holds(self.ratio) else Verdict.MISSED


def compare(comparison: Comparison, rounds: Sequence[Round], problems: Mapping[str, str]) -> Outcome:
    """Sum up one comparison.

    Args:
        comparison: what to put side by side.
        rounds: the measurements of each round by name.
        problems: why a measurement is missing, by its name.
    """
    ours = [comparison.own(one[comparison.ours]) for one in rounds if comparison.ours in one]
    peer = [one[comparison.peer] for one in rounds if comparison.peer in one]
    missing = [
        name for name, got in ((comparison.ours, ours), (comparison.peer, peer)) if len(got) < max(len(rounds), 1)
    ]
    return Outcome(
        comparison=comparison,
        ours=median(one.per_second for one in ours) if ours else None,
        peer=median(one.per_second for one in peer) if peer else None,
        ratios=() if missing else tuple(map(comparison.ratio, ours, peer)),
        problem="; ".join(f"{name}: {problems.get(name, 'no measurement')}" for name in missing),
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """A table for people: medians, ratio, spread over the rounds, floor and verdict; then why a row has none."""
    rows = [("what", "ours", "peer", "ratio", "spread", "floor", ""), *map(_row, outcomes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
    lines.insert(1, "-" * len(max(lines, key=len)))
    lines += [f"NOT RUN {one.comparison.key}: {one.problem}" for one in outcomes if one.verdict is Verdict.NOT_RUN]
    lines += [_complaint(one) for one in outcomes if one.verdict is Verdict.MISSED]
    return "\n".join(lines)


def as_json(outcomes: Sequence[Outcome], rounds: Sequence[Round], about: Mapping[str, Any]) -> dict[str, Any]:
    """The same for machines, with every single measurement.

    Args:
        outcomes: the comparisons, summed up.
        rounds: what was measured, round by round.
        about: what the figures depend on: machine, versions, settings.
    """
    return {
        "about": dict(about),
        "ratios": {
            one.comparison.key: {
                "what": one.comparison.what,
                "ours": one.comparison.unit.show(one.ours),
                "peer": one.comparison.unit.show(one.peer),
                "ours_per_second": one.ours,
                "peer_per_second": one.peer,
                "ratio": one.ratio,
                "ratios": list(one.ratios),
                "bound": one.comparison.bound.value,
                "floor": one.comparison.floor,
                "verdict": one.verdict.value,
                "problem": one.problem,
            }
            for one in outcomes
        },
        "rounds": [[{**one.as_dict(), "notes": dict(one.notes)} for one in measured.values()] for measured in rounds],
    }


def exit_status(outcomes: Sequence[Outcome]) -> int:
    """0: every floor held; 1: one was missed; 2: something did not run, so that nothing is known of it."""
    verdicts = {one.verdict for one in outcomes}
    if Verdict.NOT_RUN in verdicts or not verdicts:
        return 2
    return 1 if Verdict.MISSED in verdicts else 0


def _row(outcome: Outcome) -> tuple[str, ...]:
    comparison, ratio = outcome.comparison, outcome.ratio
    return (
        comparison.what,
        comparison.unit.show(outcome.ours),
        comparison.unit.show(outcome.peer),
        "-" if ratio is None else f"{ratio:.2f}x",
        f"{min(outcome.ratios):.2f}-{max(outcome.ratios):.2f}" if outcome.ratios else "-",
        f"{comparison.bound.value} {comparison.floor:g}x",
        outcome.verdict.value,
    )


def _complaint(outcome: Outcome) -> str:
    comparison = outcome.comparison
    return f"MISSED {comparison.key}: {outcome.ratio:.2f}x, wanted {comparison.bound.value} {comparison.floor:g}x"
