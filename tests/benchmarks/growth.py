"""`make bench-growth`: what much history, a mountain of work, an old transaction or many queues cost, as curves.

Each point of a curve has a database of its own and is measured next to the others in every round, on one Postgres;
what counts is its ratio to the first point of its curve. Some ten minutes with the million sagas and the seven rounds
that are the default, and never longer than `--limit`. Prints a table, writes var/bench-growth.json and draws it as
var/bench-growth.svg.

`python -m tests.benchmarks.growth [--size N] [--rounds N] [--limit SECONDS] [CURVE ...]`
Exit status: 0 every floor held, 1 a floor was missed, 2 something was not measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import psycopg

from sagas.testing.processes import ProcessFailed, ProcessGroup
from sagas.testing.servers import Postgres, postgres
from tests.benchmarks.peer_env import ALL, draw, peer_python
from tests.benchmarks.runner import OURS, end_at_sigterm, migrate, our_environment
from tests.benchmarks.scripts import ROOT, NotRun, tail

RESULT = ROOT / "var" / "bench-growth.json"
NO_REDIS = "redis://127.0.0.1:1/0"
FULL = 1_000_000  # the size that the floors are meant for
MOST = 2000  # sagas of one measurement
WORKERS = (1, 2, 4)  # processes over one backlog
TIMED = ("start", "claim", "begin", "record")


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Something that grows, and the share of the first point's throughput that the last one has to have left."""

    key: str
    what: str
    shares: tuple[float, ...]  # how much there is of it at each point, of the size; queues: how many
    floor: float

    def amounts(self, size: int) -> tuple[int, ...]:
        """How much there is at each point."""
        return tuple(int(share if self.key == "queues" else share * size) for share in self.shares)


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One point of a curve and its database."""

    curve: str
    amount: int
    environment: dict[str, str]


CURVES = (
    Curve(key="finished", what="finished sagas, five log rows each", shares=(0, 0.01, 0.1, 1), floor=0.90),
    Curve(key="due", what="due rows in the outbox", shares=(0.01, 0.1, 1), floor=0.80),
    # of half an hour: what 11 sagas a second leave behind, and what 278 do
    Curve(key="open", what="sagas since a transaction began that is still open", shares=(0, 0.02, 0.5), floor=0.70),
    Curve(key="queues", what="queues that the work is spread over", shares=(1, 10, 50), floor=0.80),
)
Found = dict[str, dict[int, list[dict[str, Any]]]]  # curve -> amount -> one measurement a round


@click.command()
@click.option(
    "--size", default=FULL, show_default=True, help="How many sagas the last points are about; 1,000 or more."
)
@click.option("--rounds", default=7, show_default=True, help="How many times each point is measured.")
@click.option("--limit", default=2400.0, show_default=True, help="Seconds after which nothing more is begun.")
@click.option("--result", default=str(RESULT), show_default=True, help="Where the figures go, as JSON.")
@click.argument("keys", nargs=-1)
def main(size: int, rounds: int, limit: float, result: str, keys: tuple[str, ...]) -> None:
    """Measure every curve, print what was found, and exit with what became of the floors."""
    if unknown := {*keys} - {one.key for one in CURVES} - {"workers"}:
        raise click.BadParameter(f"there is no {', '.join(sorted(unknown))}")
    end_at_sigterm()
    begun = time.monotonic()
    curves = [one for one in CURVES if not keys or one.key in keys]
    bench = Bench(size=max(size, 1000), ends=begun + limit)
    with postgres(fsync=True, private=True) as server:
        found = bench.curves(server, curves, rounds)
        workers = bench.workers(server, rounds) if not keys or "workers" in keys else {}
    missed = [one.key for one in curves if not _report(one, found.get(one.key, {}), bench.size)]
    _report_workers(workers)
    for problem in bench.problems:
        click.echo(f"NOT RUN: {problem}")
    Path(result).parent.mkdir(exist_ok=True)
    told = {"size": bench.size, "rounds": rounds, "curves": [asdict(one) for one in curves], "found": found}
    told |= {"workers": workers, "problems": bench.problems}
    Path(result).write_text(json.dumps(told, indent=2) + "\n")
    picture = _draw(Path(result))
    click.echo(f"{time.monotonic() - begun:.0f} s; {result}, {picture}")
    sys.exit(2 if bench.problems else 1 if missed else 0)


class Bench:
    """Measures within a time that ends.

    Args:
        size: sagas of the last points.
        ends: when nothing more is begun, by the monotonic clock, in seconds.
    """

    def __init__(self, *, size: int, ends: float) -> None:
        self.size, self.ends = size, ends
        self.problems: list[str] = []
        self.template = ""  # a database with our tables, of which the others are copies
        self.count = min(MOST, size // 10)  # sagas of one measurement
        self.held = ExitStack()  # transactions that stay open until all is measured

    def curves(self, server: Postgres, curves: list[Curve], rounds: int) -> Found:
        """Every point of every curve, round by round, every other round backwards."""
        with ExitStack() as self.held:
            return self._curves(server, curves, rounds)

    def _curves(self, server: Postgres, curves: list[Curve], rounds: int) -> Found:
        found: Found = {}
        places = [place for one in curves for amount in one.amounts(self.size)
                  if (place := self._filled(server, one.key, amount)) is not None]  # fmt: skip
        for number in range(rounds):
            for place in places if number % 2 == 0 else places[::-1]:
                words = ("measure", place.curve, str(place.amount), str(self.count))
                measured = self._script(f"round {number + 1} of {rounds}", place.environment, *words)
                if measured is not None:
                    found.setdefault(place.curve, {}).setdefault(place.amount, []).append(measured)
        return found

    def workers(self, server: Postgres, rounds: int) -> dict[int, list[float]]:
        """Sagas a second of so many embedded worker processes over one backlog each."""
        places = {count: self._place(server, f"growth_workers_{count}") for count in WORKERS}
        found: dict[int, list[float]] = {}
        for number in range(rounds):
            for count in WORKERS if number % 2 == 0 else WORKERS[::-1]:
                words = ("workers", str(count), str(3 * self.count))
                measured = self._script(f"round {number + 1} of {rounds}", places[count], *words)
                if measured is not None:
                    found.setdefault(count, []).append(float(measured["per_second"]))
        return found

    def _place(self, server: Postgres, name: str) -> dict[str, str]:
        if not self.template:
            self.template = "growth_template"
            migrate(our_environment(server.create_database(self.template), NO_REDIS))
        return our_environment(server.create_database(name, template=self.template), NO_REDIS)

    def _filled(self, server: Postgres, key: str, amount: int) -> Place | None:
        environment = self._place(server, f"growth_{key}_{amount}")
        if key == "open" and amount:
            self._hold(environment["DATABASE_URL"])
        filled = self._script("before", environment, "fill", key, str(amount))
        return None if filled is None else Place(curve=key, amount=amount, environment=environment)

    def _hold(self, dsn: str) -> None:
        """Begin a transaction that sees what there is now, and nothing later, and leave it open."""
        old = self.held.enter_context(closing(psycopg.connect(dsn)))
        old.execute("set transaction isolation level repeatable read")
        old.execute("select count(*) from sagas_outbox")

    def _script(self, when: str, environment: dict[str, str], *arguments: str) -> dict[str, Any] | None:
        """What the script printed; None, with the problem noted, if it was not run to its end in time."""
        what = f"{when}: {' '.join(arguments)}"
        click.echo(what, err=True)
        try:
            return _run(environment, arguments, self.ends - time.monotonic())
        except NotRun as problem:
            self.problems.append(f"{what}: {problem}")
            return None


def _run(environment: dict[str, str], arguments: tuple[str, ...], seconds: float) -> dict[str, Any]:
    """Run the script and return what it printed.

    Raises:
        NotRun: it failed, or there was no time left.
    """
    if seconds <= 0:
        raise NotRun("no time was left for it; see --limit")
    with ProcessGroup() as group:
        command = (*OURS, "tests.benchmarks.growth_script", *arguments)
        process = group.start(command, env={"PYTHONUNBUFFERED": "1", **environment}, cwd=ROOT)
        try:
            status = process.wait(seconds)
        except ProcessFailed:
            process.kill()
            raise NotRun(f"was given up after {seconds:.0f} s: {tail(process.output())}") from None
        output = process.output()
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if status or not lines:
        raise NotRun(f"exit status {status}: {tail(output)}")
    return dict(json.loads(lines[-1]))


def _draw(result: Path) -> str:
    """Draw the figures; returns where, or why not, which is no reason to lose the figures."""
    target = result.with_suffix(".svg")
    try:
        draw(peer_python(ALL), "picture_growth.py", result, target)
    except (NotRun, subprocess.SubprocessError) as problem:
        return f"no picture: {problem}"
    return str(target)


def _report(curve: Curve, found: dict[int, list[dict[str, Any]]], size: int) -> bool:
    """Print a curve; returns whether its last point held the floor. Where nothing was measured, nothing was missed."""
    held = True
    click.echo(f"\n{curve.what:52} {'sagas/s':>8} {'ratio':>6} {'spread':>11}   p99 in ms: {'  '.join(TIMED)}")
    amounts = [amount for amount in curve.amounts(size) if amount in found]
    for amount in amounts:
        rates = [each["per_second"] for each in found[amount]]
        ratios = [a / b["per_second"] for a, b in zip(rates, found[amounts[0]], strict=False)]
        p99 = [median(each["p99"].get(name, 0.0) for each in found[amount]) * 1000 for name in TIMED]
        last = amount == curve.amounts(size)[-1]
        held = not last or median(ratios) >= curve.floor
        verdict = "" if not last else f"  at least {curve.floor:g}: " + ("ok" if held else "MISSED")
        times = "  ".join(f"{each:6.1f}" for each in p99)
        spread = f"{min(ratios):5.2f}-{max(ratios):.2f}"
        click.echo(f"{amount:52,} {median(rates):8.0f} {median(ratios):6.2f} {spread:>11}  {'':10}{times}{verdict}")
    return held


def _report_workers(found: dict[int, list[float]]) -> None:
    click.echo(
        f"\n{f'worker processes, on {os.cpu_count()} processors':52} {'sagas/s':>8} {'ratio':>6}" if found else ""
    )
    for count, rates in found.items():
        ratio = median(a / b for a, b in zip(rates, found.get(WORKERS[0], rates), strict=False))
        click.echo(f"{count:52} {median(rates):8.0f} {ratio:6.2f}")


if __name__ == "__main__":
    main()
