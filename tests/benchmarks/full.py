"""`make bench`: the same work through each peer and through us, interleaved, on one Postgres and one Redis.

Prints a table and says where we lose; writes var/bench.json and var/bench.svg. Some ten minutes on a
quiet machine; nothing is begun after `--limit`.

`python -m tests.benchmarks.full [--rounds N] [--limit SECONDS] [KEY ...]` measures only the comparisons of those keys.
Exit status: 0 every floor held, 1 a floor was missed (the table says which), 2 something did not run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from tests.benchmarks.comparisons import COMPARISONS, PAYLOADS, THREADS
from tests.benchmarks.peer_env import ALL, draw, peer_python
from tests.benchmarks.report import Outcome, Verdict, as_json, compare, exit_status, table
from tests.benchmarks.runner import PEERS, Places, Script, about, end_at_sigterm, measure, places
from tests.benchmarks.scripts import ROOT, NotRun

LIMIT = 20.0  # seconds that the measured part of one script may take
PATIENCE = 90.0  # seconds for one script with all its processes
RESULT, PICTURE = ROOT / "var" / "bench.json", ROOT / "var" / "bench.svg"
ONE_ROW = json.dumps({"MESSAGE_ROWS": 1})  # batching off
NEEDS = tuple(f"{side}.{what}_{kind}" for side in ("ours", "bound") for what in ("memory", "connections")
              for kind in ("embedded", "relay", "celery_child"))  # fmt: skip
LARGE = json.dumps({"MAX_PAYLOAD": 16 * 1024 * 1024})


def scripts(at: Places, url: str) -> tuple[Script, ...]:
    """All scripts of one round; each side of a comparison next to the other.

    Args:
        at: the servers.
        url: a local HTTP server whose answers take 10 ms.
    """
    return (
        at.peer("dbos_steps.py", at.peer_dsn, 300, LIMIT, measures=("dbos.start_workflow",)),
        at.ours("ours_embedded", 3000, LIMIT, measures=("ours.embedded",)),
        at.ours("limit", 3000, measures=("limit.bare_sql",)),
        at.peer("absurd_steps.py", at.peer_dsn, 300, LIMIT, 1, measures=("absurd.worker",)),
        at.peer("celery_chain.py", 400, LIMIT, measures=("celery.chain",)),
        at.ours("ours_celery", 3000, LIMIT, measures=("ours.celery",)),
        at.ours("ours_celery", 600, LIMIT, "ours.celery_one", measures=("ours.celery_one",), BENCH_SAGAS=ONE_ROW),
        at.peer("dbos_local.py", at.peer_dsn, 150, LIMIT, measures=("dbos.datasource",)),
        at.ours("ours_work", "inserts", 1500, LIMIT, measures=("ours.inserts",)),
        at.ours("alchemy", 1500, LIMIT, measures=("ours.alchemy",), ALCHEMY_URL=at.alchemy_dsn),
        at.peer("outbox_relay.py", 3000, LIMIT, 4, measures=("django_celery_outbox.relay",)),
        at.ours("ours_messages", 5000, LIMIT, measures=("ours.messages",)),
        at.ours("ours_start", 500, measures=("ours.with_start", "django.without_start")),
        at.peer("dbos_idle.py", at.peer_dsn, 10, LIMIT, measures=("dbos.idle",)),
        *(
            at.ours(f"ours_{state}", kind, count, LIMIT, measures=_latencies(f"{state}_{kind}"))
            for state, count in (("idle", 100), ("loaded", 2000)) for kind in ("embedded", "celery")
        ),
        at.ours("ours_pruning", 12, measures=("ours.pruning", "ours.not_pruning")),
        at.ours("ours_needs", 2000, LIMIT, measures=NEEDS),
        at.ours("ours_fan_out", 10_000, 60.0, measures=("ours.fan_out", "ours.single")),
        *(
            script for threads in THREADS for script in (
                at.peer("dbos_http.py", at.peer_dsn, url, 150 + 10 * threads, LIMIT, threads,
                        measures=(f"dbos.http.{threads}",)),
                at.ours("ours_work", "call", 300 + 40 * threads, LIMIT, threads, measures=(f"ours.call.{threads}",),
                        BENCH_URL=url),
            )
        ),
        *(
            script for size, (peer_count, count) in PAYLOADS.items() for script in (
                at.peer("dbos_steps.py", at.peer_dsn, peer_count, LIMIT, size, measures=(f"dbos.carry.{size}",)),
                at.ours("ours_work", "carry", count, LIMIT, size, measures=(f"ours.carry.{size}",), BENCH_SAGAS=LARGE),
            )
        ),
    )  # fmt: skip


@click.command()
@click.option("--rounds", default=3, show_default=True, help="How many times everything is measured.")
@click.option("--limit", default=3600.0, show_default=True, help="Seconds after which nothing more is begun.")
@click.argument("keys", nargs=-1)
def main(rounds: int, limit: float, keys: tuple[str, ...]) -> None:
    """Measure, report, and exit with what became of the floors."""
    end_at_sigterm()
    wanted = [one for one in COMPARISONS if not keys or one.key in keys]
    if unknown := set(keys) - {one.key for one in COMPARISONS}:
        raise click.BadParameter(f"there is no {', '.join(sorted(unknown))}; the keys are {', '.join(_keys())}")
    try:
        python = peer_python(ALL)
    except NotRun as error:
        click.echo(f"NOT RUN: {error}")
        sys.exit(2)
    begun = time.monotonic()
    names = {name for one in wanted for name in (one.ours, one.peer)}
    with places(python) as at, _slow_server(python) as url:
        chosen = [script for script in scripts(at, url) if names & {*script.measures}]
        measured, problems = measure(chosen, rounds=rounds, patience=PATIENCE, ends=begun + limit)
    outcomes = [compare(one, measured, problems) for one in wanted]
    click.echo(table(outcomes))
    for line in _losses(outcomes):
        click.echo(line)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(as_json(outcomes, measured, about(len(measured))), indent=2) + "\n")
    draw(python, "picture.py", RESULT, PICTURE)
    click.echo(f"{len(measured)} interleaved rounds, {time.monotonic() - begun:.0f} s; "
               f"{RESULT.relative_to(ROOT)}, {PICTURE.relative_to(ROOT)}")  # fmt: skip
    sys.exit(exit_status(outcomes))


def _latencies(name: str) -> tuple[str, ...]:
    return tuple(f"{side}.{name}{which}" for side in ("ours", "budget") for which in ("", "_p99"))


def _keys() -> list[str]:
    return [one.key for one in COMPARISONS]


def _losses(outcomes: list[Outcome]) -> Iterator[str]:
    """Where we lose: a rate below the peer's, or a time above it that nobody is asked to accept."""
    for one in outcomes:
        if one.verdict is not Verdict.NOT_RUN and one.ours is not None and one.peer is not None and one.ours < one.peer:
            ours, peer = one.comparison.unit.show(one.ours), one.comparison.unit.show(one.peer)
            yield f"WE LOSE {one.comparison.key}: {ours} against {peer}: {one.comparison.what}"


@contextmanager
def _slow_server(python: str) -> Iterator[str]:
    """A server whose answers take 10 ms, for both sides."""
    server = subprocess.Popen(
        [python, f"{PEERS}/http_server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None and server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
