"""Two processes look after the schedules, and are frozen and killed around and within ticks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sagas.testing.processes import Process, ProcessGroup
from sagas.testing.servers import Redis
from tests.relay.plant import PATIENCE, SHORT, redis_url, wait_until

ROOT = Path(__file__).parents[2]
SECOND = timedelta(seconds=1)
ACTIVE = """
select count(*) from pg_stat_activity
where state = 'active' and datname = current_database() and pid <> pg_backend_pid()
"""
PROGRAMS = {"relay": ("relay", "--app", "tests.relay.celery_app"), "worker": ("worker", "--concurrency", "2")}


class Clockwork:
    """A database, and the processes that look after its schedules."""

    def __init__(self, url: str, broker: str, processes: ProcessGroup, traps: Path, programs: str) -> None:
        self.url, self.broker, self.processes, self.traps = url, broker, processes, traps
        self.programs = cycle(programs.split())
        self.connection = psycopg.connect(url, autocommit=True)

    def start(self) -> Process:
        """One more process, which serves."""
        env = {
            "DJANGO_SETTINGS_MODULE": "tests.ticking.settings", "DATABASE_URL": self.url, "REDIS_URL": self.broker,
            "RELAY_SAGAS": json.dumps(SHORT), "TICKING_TRAPS": str(self.traps),
        }  # fmt: skip
        program = next(self.programs)
        words = ("-m", "django", "sagas", *PROGRAMS[program])
        process = self.processes.python(*words, name=program, env=env, cwd=ROOT)
        process.wait_for_output("serves", PATIENCE)
        return process

    def value(self, sql: str) -> Any:
        row = self.connection.execute(sql).fetchone()  # type: ignore[call-overload]
        assert row is not None
        return row[0]

    def ticks(self, name: str = "ticking.tick") -> list[datetime]:
        """The ticks that have started a saga, in order; those of a key that was used again come twice."""
        found = self.connection.execute("select key from sagas_saga where name = %s", [name])
        return sorted(datetime.fromisoformat(key.partition("@")[2]) for (key,) in found)

    def more(self, count: int, who: str) -> None:
        """Wait until so many more ticks have started sagas."""
        wanted = len(self.ticks()) + count
        wait_until(lambda: len(self.ticks()) >= wanted, f"{count} ticks more: {who}")

    def nothing_for(self, seconds: int) -> None:
        """Let the clock of the database go on for so long, while nobody is there to start anything."""
        wait_until(lambda: self.value(ACTIVE) == 0, "the server to end what it was asked before")
        before, until = len(self.ticks()), self.value(f"select clock_timestamp() + interval '{seconds} s'")
        wait_until(lambda: self.value("select clock_timestamp()") > until, "time to pass")
        assert len(self.ticks()) == before

    def trap(self, name: str) -> int:
        """Set a trap; returns the id of the process that has stepped into it."""
        (self.traps / name).touch()
        (hit,) = wait_until(lambda: list(self.traps.glob(f"{name}.*")), f"somebody to step into {name}")
        return int(hit.suffix[1:])


@pytest.fixture(
    params=["relay worker", *(pytest.param(alone, marks=pytest.mark.full) for alone in PROGRAMS)],
    ids=lambda programs: programs.replace(" ", "-and-"),
)
def clockwork(
    request: pytest.FixtureRequest,
    fresh_database: str,
    redis_server: Redis,
    process_group: ProcessGroup,
    tmp_path: Path,
) -> Iterator[Clockwork]:
    traps = tmp_path / "traps"
    traps.mkdir()
    made = Clockwork(fresh_database, redis_url(redis_server), process_group, traps, request.param)
    yield made
    made.connection.close()


def frozen_in_a_tick(clock: Clockwork, pair: list[Process]) -> list[Process]:
    """One stands still in the middle of a tick, for longer than a lease; the other one goes on."""
    pid = clock.trap("freeze")
    (still,) = [each for each in pair if each.pid == pid]
    clock.more(3, "the one that is not frozen")
    assert timedelta(seconds=SHORT["LEASE"]) < 2 * SECOND
    return [still, *(each for each in pair if each.pid != pid)]


def killed_in_a_tick(clock: Clockwork, pair: list[Process]) -> list[Process]:
    """The other one kills itself in the middle of a tick, and for a while nobody is there; then the first wakes up."""
    still, other = pair
    assert clock.trap("kill") == other.pid
    clock.nothing_for(2)
    still.resume()
    clock.more(3, "what the one that was frozen makes up for")
    return [still, clock.start()]


def frozen_together(clock: Clockwork, pair: list[Process]) -> list[Process]:
    """Both stand still wherever they are, and come back at the same moment."""
    for each in pair:
        each.pause()
    clock.nothing_for(2)
    for each in pair:
        each.resume()
    clock.more(3, "what was missed")
    return pair


def killed_from_outside(clock: Clockwork, pair: list[Process]) -> list[Process]:
    """One is killed wherever it is."""
    pair[0].kill()
    clock.more(1, "the one that is left")
    return pair[1:]


HARM: tuple[Callable[[Clockwork, list[Process]], list[Process]], ...] = (
    frozen_in_a_tick, killed_in_a_tick, frozen_together, killed_from_outside,
)  # fmt: skip


def test_no_tick_is_missed_and_none_counts_twice(clockwork: Clockwork) -> None:
    """Every second from the first to the last has started its saga, whoever was frozen or killed, and wherever.

    And runs that must not overlap do not.
    """
    pair = [clockwork.start(), clockwork.start()]
    clockwork.more(1, "either")
    for harm in HARM:
        pair = harm(clockwork, pair)
    for each in pair:
        each.terminate()
        assert each.wait(15) == 0, each.output()
    ticks = clockwork.ticks()
    assert ticks == [ticks[0] + number * SECOND for number in range(len(ticks))]
    assert clockwork.value("select count(*) from sagas_saga where run > 1") == 0
    assert clockwork.value("select last_at from sagas_schedule where name = 'ticking.tick'") == ticks[-1]
    alone = clockwork.connection.execute(
        "select created_at, coalesce(finished_at, 'infinity') > lead(created_at) over (order by created_at)"
        " from sagas_saga where name = 'ticking.alone' order by created_at"
    ).fetchall()
    assert alone and not any(overlaps for _, overlaps in alone)
