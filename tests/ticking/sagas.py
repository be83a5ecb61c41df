"""Two schedules that tick every second. One of them can be told to stop its process in the middle of a tick."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from sagas import CatchUp, Overlap, Saga, Schedule, external_step

QUEUE = "ticking"  # nobody else's, on a broker that others use too
TRAPS = {"freeze": signal.SIGSTOP, "kill": signal.SIGKILL}


class Tick(Saga[datetime], name="ticking.tick", version=1):
    """One for each second."""

    @external_step(compensate=None, queue=QUEUE)
    def act(self) -> None: ...


class Alone(Saga[datetime], name="ticking.alone", version=1):
    """One at a time."""

    @external_step(compensate=None, queue=QUEUE)
    def act(self) -> None: ...


def trapped(tick: datetime) -> datetime:
    """The input of a tick: the tick. Who steps into a trap has looked what is due, and started nothing yet."""
    for name, number in TRAPS.items():
        trap = Path(os.environ.get("TICKING_TRAPS", "/nowhere")) / name
        with suppress(FileNotFoundError):
            trap.rename(trap.with_suffix(f".{os.getpid()}"))  # one process only
            os.kill(os.getpid(), number)
    return tick


Schedule(Tick, every=timedelta(seconds=1), input=trapped, catch_up=CatchUp.ALL, most=1000)
Schedule(Alone, every=timedelta(seconds=1), input=lambda tick: tick, overlap=Overlap.SKIP)
