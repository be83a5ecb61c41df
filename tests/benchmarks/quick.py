"""`make bench-quick`: the main ratios in under 90 seconds. Prints a table, writes var/bench-quick.json.

Exit status: 0 every floor held, 1 a floor was missed (the table says which), 2 something did not run.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from urllib.parse import urlsplit

from sagas.testing.processes import ProcessGroup
from sagas.testing.servers import postgres, redis
from tests.benchmarks.peer_env import peer_python
from tests.benchmarks.report import Bound, Comparison, Measurement, as_json, compare, exit_status, table
from tests.benchmarks.scripts import ROOT, NotRun, run_script, tail

ROUNDS = 3
LIMIT = 12.0  # seconds that the measured part of one script may take
PATIENCE = 30.0  # seconds for one script with all its processes
RESULT = ROOT / "var" / "bench-quick.json"
COMPARISONS = (
    Comparison(
        key="embedded",
        what="3 external no-op steps, embedded worker : dbos start_workflow",
        ours="ours.embedded",
        peer="dbos.start_workflow",
        bound=Bound.AT_LEAST,
        floor=10,
    ),
    Comparison(
        key="celery",
        what="the same over Celery + Redis, 2 processes : bare Celery chain of 3",
        ours="ours.celery",
        peer="celery.chain",
        bound=Bound.AT_LEAST,
        floor=5,
    ),
    Comparison(
        key="start",
        what="time of a transaction of 2 inserts, with start() : without",
        ours="ours.with_start",
        peer="django.without_start",
        bound=Bound.AT_MOST,
        floor=1.8,
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """One process that measures."""

    measures: tuple[str, ...]  # names of the lines it prints
    command: tuple[str, ...]
    environment: dict[str, str]


def scripts(python: str, peer_dsn: str, our_dsn: str, redis_url: str) -> tuple[Script, ...]:
    """All scripts of one round; each side of a comparison next to the other."""
    peers, ours = str(ROOT / "tests" / "benchmarks" / "peers"), (sys.executable, "-m")
    environment = our_environment(our_dsn, numbered(redis_url, 1))
    return (
        Script(
            measures=("dbos.start_workflow",),
            command=(python, f"{peers}/dbos_steps.py", peer_dsn, "300", str(LIMIT)),
            environment={},
        ),
        Script(
            measures=("ours.embedded",),
            command=(*ours, "tests.benchmarks.ours_embedded", "1500", str(LIMIT)),
            environment=environment,
        ),
        Script(
            measures=("celery.chain",),
            command=(python, f"{peers}/celery_chain.py", "400", str(LIMIT)),
            environment={"REDIS_URL": numbered(redis_url, 0)},
        ),
        Script(
            measures=("ours.celery",),
            command=(*ours, "tests.benchmarks.ours_celery", "1500", str(LIMIT)),
            environment=environment,
        ),
        Script(
            measures=("ours.with_start", "django.without_start"),
            command=(*ours, "tests.benchmarks.ours_start", "500"),
            environment=environment,
        ),
    )


def our_environment(dsn: str, redis_url: str) -> dict[str, str]:
    """What our side's processes are told."""
    return {"DJANGO_SETTINGS_MODULE": "tests.benchmarks.settings", "DATABASE_URL": dsn, "REDIS_URL": redis_url}


def numbered(redis_url: str, number: int) -> str:
    """One of the numbered databases of a Redis, so that two Celery applications do not meet."""
    return urlsplit(redis_url)._replace(path=f"/{number}").geturl()


def measure(all_scripts: Sequence[Script]) -> tuple[list[dict[str, Measurement]], dict[str, str]]:
    """Run every script once a round, the second round backwards; one that failed is not tried again.

    Returns:
        The measurements of each round by name, and by name why one is missing.
    """
    rounds: list[dict[str, Measurement]] = []
    problems: dict[str, str] = {}
    for number in range(ROUNDS):
        rounds.append({})
        for script in all_scripts if number % 2 == 0 else all_scripts[::-1]:
            if script.measures[0] in problems:
                continue
            print(f"round {number + 1} of {ROUNDS}: {', '.join(script.measures)}", file=sys.stderr, flush=True)
            try:
                measured = run_script(script.command, environment=script.environment, timeout=PATIENCE)
                rounds[-1].update((one.name, one) for one in measured)
            except (NotRun, ValueError) as error:
                problems.update(dict.fromkeys(script.measures, str(error)))
    return rounds, problems


def migrate(environment: Mapping[str, str]) -> None:
    """Make our tables. If that fails, the scripts that miss them say so as well."""
    with ProcessGroup() as group:
        process = group.start((sys.executable, "-m", "django", "migrate", "--run-syncdb"), env=environment, cwd=ROOT)
        if process.wait(PATIENCE):
            print(f"migrate failed: {tail(process.output())}", file=sys.stderr)


def main() -> int:
    """Install the peers, start the servers, measure, report."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        python = peer_python()
    except NotRun as error:
        print(f"NOT RUN: {error}")
        return 2
    begun = time.monotonic()
    with ExitStack() as stack:
        database = stack.enter_context(postgres(fsync=True, private=True))
        broker = stack.enter_context(redis(private=True))
        peer_dsn, our_dsn = database.create_database("bench_peer"), database.create_database("bench_ours")
        migrate(our_environment(our_dsn, broker.url))
        rounds, problems = measure(scripts(python, peer_dsn, our_dsn, broker.url))
    outcomes = [compare(one, rounds, problems) for one in COMPARISONS]
    print(table(outcomes))
    print(f"{ROUNDS} interleaved rounds, {time.monotonic() - begun:.0f} s; details in {RESULT.relative_to(ROOT)}")
    about = {
        "rounds": ROUNDS,
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "postgres": "fsync on, default durability",
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(as_json(outcomes, rounds, about), indent=2) + "\n")
    return exit_status(outcomes)


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # unwinds, so that everything started here is ended


if __name__ == "__main__":
    sys.exit(main())
