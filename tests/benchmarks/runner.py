"""Running scripts in interleaved rounds: what `make bench-quick` and `make bench` share."""

from __future__ import annotations

import os
import platform
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from sagas.testing.processes import ProcessGroup
from sagas.testing.servers import postgres, redis
from tests.benchmarks.report import Measurement
from tests.benchmarks.scripts import ROOT, NotRun, run_script, tail

PATIENCE = 60.0  # seconds for a script with all its processes, beyond what it measures
OURS = (sys.executable, "-m")
PEERS = str(ROOT / "tests" / "benchmarks" / "peers")


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """One process that measures."""

    measures: tuple[str, ...]  # names of the lines it prints
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Where the scripts find the peers' Python, and the servers that all share."""

    python: str  # the peers'
    peer_dsn: str
    our_dsn: str
    redis_url: str
    alchemy_dsn: str = ""  # of our side under SQLAlchemy, which makes its tables itself

    def ours(self, module: str, *arguments: object, measures: tuple[str, ...], **environment: str) -> Script:
        """A script of our side: `python -m tests.benchmarks.MODULE ARGUMENTS`."""
        return Script(
            measures=measures, command=(*OURS, f"tests.benchmarks.{module}", *map(str, arguments)),
            environment=our_environment(self.our_dsn, numbered(self.redis_url, 1)) | environment,
        )  # fmt: skip

    def peer(self, file: str, *arguments: object, measures: tuple[str, ...]) -> Script:
        """A script of a peer, run by the peers' Python."""
        return Script(
            measures=measures, command=(self.python, f"{PEERS}/{file}", *map(str, arguments)),
            environment={"DATABASE_URL": self.peer_dsn, "REDIS_URL": numbered(self.redis_url, 0)},
        )  # fmt: skip


@contextmanager
def places(python: str) -> Iterator[Places]:
    """One Postgres, with fsync and all else at its defaults, and one Redis, with our tables made."""
    with postgres(fsync=True, private=True) as database, redis(private=True) as broker:
        peer_dsn, our_dsn = database.create_database("bench_peer"), database.create_database("bench_ours")
        migrate(our_environment(our_dsn, broker.url))
        yield Places(
            python=python, peer_dsn=peer_dsn, our_dsn=our_dsn, redis_url=broker.url,
            alchemy_dsn=database.create_database("bench_alchemy"),
        )  # fmt: skip


def our_environment(dsn: str, redis_url: str) -> dict[str, str]:
    """What our side's processes are told."""
    return {"DJANGO_SETTINGS_MODULE": "tests.benchmarks.settings", "DATABASE_URL": dsn, "REDIS_URL": redis_url}


def numbered(redis_url: str, number: int) -> str:
    """One of the numbered databases of a Redis, so that two Celery applications do not meet."""
    return urlsplit(redis_url)._replace(path=f"/{number}").geturl()


def migrate(environment: Mapping[str, str]) -> None:
    """Make our tables. If that fails, the scripts that miss them say so as well."""
    with ProcessGroup() as group:
        process = group.start((sys.executable, "-m", "django", "migrate", "--run-syncdb"), env=environment, cwd=ROOT)
        if process.wait(PATIENCE):
            print(f"migrate failed: {tail(process.output())}", file=sys.stderr)


def measure(
    all_scripts: Sequence[Script], *, rounds: int, patience: float, ends: float = float("inf")
) -> tuple[list[dict[str, Measurement]], dict[str, str]]:
    """Run every script once a round, every other round backwards; one that failed is not tried again.

    Args:
        all_scripts: each side of a comparison next to the other.
        rounds: how many.
        patience: seconds for one script with all its processes.
        ends: when nothing more is begun, by the monotonic clock, in seconds: no round that would take longer, if there
            was one before, and else no script.

    Returns:
        The measurements of each round by name, and by name why one is missing.
    """
    measured: list[dict[str, Measurement]] = []
    problems: dict[str, str] = {}
    longest = 0.0
    for number in range(rounds):
        begun = time.monotonic()
        if number and begun + longest > ends:
            print(f"no time is left for round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            break
        measured.append({})
        for script in all_scripts if number % 2 == 0 else all_scripts[::-1]:
            if script.measures[0] in problems:
                continue
            if not number and time.monotonic() > ends:
                problems.update(dict.fromkeys(script.measures, "no time was left for it"))
                continue
            print(f"round {number + 1} of {rounds}: {', '.join(script.measures)}", file=sys.stderr, flush=True)
            try:
                found = run_script(script.command, environment=script.environment, timeout=patience)
                measured[-1].update((one.name, one) for one in found)
            except (NotRun, ValueError) as error:
                problems.update(dict.fromkeys(script.measures, str(error)))
        longest = max(longest, time.monotonic() - begun)
    return measured, problems


def about(rounds: int) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "rounds": rounds,
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "postgres": "fsync on, default durability",
    }


def end_at_sigterm() -> None:
    """Let SIGTERM unwind, so that everything started here is ended."""

    def stop(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stop)
