"""`make bench-growth`: what a table full of history, a mountain of work, an old transaction or many queues cost.

Each condition is measured next to an empty neighbour in the same run, on one Postgres; the figures are ratios to it.
Some fifteen minutes with the million sagas that are the default. Prints a table, writes var/bench-growth.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import click

from sagas.testing.processes import ProcessGroup
from sagas.testing.servers import Postgres, postgres
from tests.benchmarks.runner import OURS, end_at_sigterm, migrate, our_environment
from tests.benchmarks.scripts import ROOT, NotRun

RESULT = ROOT / "var" / "bench-growth.json"
PATIENCE = 900.0  # seconds for one condition with all that it has to fill first
ROUNDS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """What is different, and the share of the neighbour's throughput that has to be left."""

    key: str
    what: str
    floor: float
    neighbour: str = "empty"


CONDITIONS = (
    Condition(key="empty", what="empty tables", floor=1.0),
    Condition(key="finished", what="finished sagas, five log rows each", floor=0.90),
    Condition(key="due", what="due rows in the outbox, against 10,000", floor=0.80, neighbour="due-small"),
    Condition(key="due-small", what="10,000 due rows", floor=0.0),
    Condition(key="open", what="beside a transaction that was open for 20,000 sagas", floor=0.70),
    Condition(key="queues", what="spread over 50 queues", floor=0.80),
)


@click.command()
@click.option("--sagas", default=1_000_000, show_default=True, help="How many of them fill the tables.")
@click.argument("keys", nargs=-1)
def main(sagas: int, keys: tuple[str, ...]) -> None:
    """Measure every condition in a database of its own; the exit status says whether all floors held."""
    end_at_sigterm()
    begun = time.monotonic()
    chosen = [one for one in CONDITIONS if not keys or one.key in keys or one.key in ("empty", "due-small")]
    with postgres(fsync=True, private=True) as server:
        environments = {one.key: _prepared(server, one.key, sagas) for one in chosen}
        found: dict[str, list[dict[str, Any]]] = {one.key: [] for one in chosen}
        for number in range(ROUNDS):
            for one in chosen if number % 2 == 0 else chosen[::-1]:
                click.echo(f"round {number + 1} of {ROUNDS}: {one.key}", err=True)
                found[one.key].append(_measured(environments[one.key], one.key))
        workers = [(count, _several(server, count)) for count in (1, 2, 4)]
    missed = _report(chosen, found, workers)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({"conditions": [asdict(one) for one in chosen], "found": found,
                                  "workers": workers, "sagas": sagas}, indent=2) + "\n")  # fmt: skip
    click.echo(f"{time.monotonic() - begun:.0f} s; {RESULT.relative_to(ROOT)}")
    sys.exit(1 if missed else 0)


def _prepared(server: Postgres, key: str, sagas: int) -> dict[str, str]:
    environment = our_environment(server.create_database(f"growth_{key.replace('-', '_')}"), "redis://127.0.0.1:1/0")
    migrate(environment)
    click.echo(f"filling for {key}", err=True)
    _script(environment, "fill", key, str(sagas))
    return environment


def _measured(environment: dict[str, str], key: str) -> dict[str, Any]:
    return json.loads(_script(environment, "measure", key))


def _script(environment: dict[str, str], *arguments: str) -> str:
    with ProcessGroup() as group:
        command = (*OURS, "tests.benchmarks.growth_script", *arguments)
        process = group.start(command, env={"PYTHONUNBUFFERED": "1", **environment}, cwd=ROOT)
        status = process.wait(PATIENCE)
        output = process.output()
    if status:
        raise NotRun(f"{' '.join(arguments)}: exit status {status}: {output[-500:]}")
    return next(line for line in reversed(output.splitlines()) if line.startswith("{"))


def _several(server: Postgres, count: int) -> float:
    """Sagas a second of so many embedded worker processes over one backlog."""
    environment = our_environment(server.create_database(f"growth_workers_{count}"), "redis://127.0.0.1:1/0")
    migrate(environment)
    return float(json.loads(_script(environment, "workers", str(count)))["per_second"])


def _report(chosen: list[Condition], found: dict[str, list[dict[str, Any]]], workers: list[tuple[int, float]]) -> bool:
    """Print the table; returns whether a floor was missed."""
    missed = False
    click.echo(f"{'condition':52} {'sagas/s':>8} {'ratio':>6} {'floor':>6}   p99 in ms: start  claim  begin  record")
    for one in chosen:
        rates = [each["per_second"] for each in found[one.key]]
        ratio = median(a / b["per_second"] for a, b in zip(rates, found[one.neighbour], strict=True))
        p99 = [
            median(each["p99"][name] for each in found[one.key]) * 1000
            for name in ("start", "claim", "begin", "record")
        ]
        missed |= ratio < one.floor
        click.echo(f"{one.what:52} {median(rates):8.0f} {ratio:6.2f} {one.floor:6.2f}   {'':10}"
                   + "  ".join(f"{each:6.1f}" for each in p99) + ("  MISSED" if ratio < one.floor else ""))  # fmt: skip
    for count, rate in workers:
        click.echo(f"{count} worker processes on {os.cpu_count()} processors: {rate:.0f} sagas/s")
    return missed


if __name__ == "__main__":
    main()
