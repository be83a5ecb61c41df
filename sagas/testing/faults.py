"""Stop or kill this process at a named point, so that a test can look at what it leaves behind.

A settings module of tests or of the demo calls `install_from_environment()`; the test starts the real
command with `SAGAS_FAULT` set, waits for the marker file, looks, and kills:

    fault = "worker.after_body@charge:do:pause"      # point @ work : action
    worker = processes.python("-m", "django", "sagas", "worker", env=environment(marker, fault))
    hit = wait_for_hit(marker, worker)
    os.kill(hit.pid, signal.SIGKILL)

The grammar is `POINT[@WORK][#N]:ACTION`. POINT is one of `sagas.points.Point`; WORK is what the point
must be about, such as ``charge:do`` or ``charge:undo``, one of several where a point is about a batch; N counts
hits in one process, from 1; ACTION is `pause` (stand still there until `resume(marker)`) or `kill` (SIGKILL
ourselves there). Several faults are separated by spaces, each with a marker of its own. A fault strikes
once for all processes that share its marker, so a pool may replace the child that was killed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sagas.points import Point, listen
from sagas.testing.keeping import Process

FAULT = "SAGAS_FAULT"
FILE = "SAGAS_FAULT_FILE"
LONGEST_PAUSE = 120.0  # seconds; a test that forgot us does not keep us for ever
GRAMMAR = re.compile(r"(?P<point>[a-z_.]+)(@(?P<work>[^#]+))?(#(?P<hit>[0-9]+))?:(?P<action>pause|kill)")


class FaultError(ValueError):
    """SAGAS_FAULT cannot be read, or SAGAS_FAULT_FILE is missing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One planned fault.

    Attributes:
        point: where to strike.
        work: what the point must be about; None: whatever it is.
        hit: strike at the n-th such hit of a process.
        kills: end the process there; else it pauses.
    """

    point: Point
    work: str | None = None
    hit: int = 1
    kills: bool = False

    @classmethod
    def parse(cls, text: str) -> Fault:
        """A fault from its text.

        Raises:
            FaultError: it does not follow the grammar, or names no point.
        """
        found = GRAMMAR.fullmatch(text)
        if found is None:
            raise FaultError(f"{FAULT}={text!r}: expected POINT[@WORK][#N]:pause or :kill")
        try:
            point = Point(found["point"])
        except ValueError:
            raise FaultError(f"{FAULT}={text!r}: no such point; there are {', '.join(Point)}") from None
        return cls(point=point, work=found["work"], hit=int(found["hit"] or 1), kills=found["action"] == "kill")

    def __str__(self) -> str:
        work = f"@{self.work}" if self.work else ""
        return f"{self.point}{work}#{self.hit}:{'kill' if self.kills else 'pause'}"

    def concerns(self, point: Point, detail: str) -> bool:
        """Whether a point that was reached is the one meant."""
        return point is self.point and (self.work is None or self.work in detail.split(","))


@dataclass(slots=True)
class Striker:
    """Strikes when the point of its fault is reached. A forked child counts on from its parent, on its own."""

    fault: Fault
    marker: Path
    hits: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, point: Point, detail: str) -> None:
        if not self.fault.concerns(point, detail):
            return
        with self.lock:
            self.hits += 1
            if self.hits != self.fault.hit or self.marker.exists():
                return
            _write(self.marker, {"point": point.value, "detail": detail, "pid": os.getpid()})
        if self.fault.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        deadline = time.monotonic() + LONGEST_PAUSE
        while not _go(self.marker).exists() and time.monotonic() < deadline:
            time.sleep(0.02)


def install_from_environment() -> None:
    """Do in this process what SAGAS_FAULT says; without it, nothing.

    Raises:
        FaultError: it cannot be understood.
    """
    text = os.environ.get(FAULT)
    if not text:
        return
    marker = os.environ.get(FILE)
    if not marker:
        raise FaultError(f"{FAULT} is set and {FILE} is not: say where the marker file is to be written")
    strikers = [Striker(Fault.parse(each), _numbered(Path(marker), n)) for n, each in enumerate(text.split())]

    def strike(point: Point, detail: str) -> None:
        for striker in strikers:
            striker(point, detail)

    listen(strike)


def environment(marker: Path, *faults: str) -> dict[str, str]:
    """What to add to the environment of a process that is to strike.

    Args:
        marker: the file that the first fault leaves; the others' names have a number more.
        faults: what is planned.

    Raises:
        FaultError: a fault cannot be understood, or the marker of an earlier one is still there.
    """
    if marker.exists():
        raise FaultError(f"{marker} exists: a fault struck there already")
    return {FAULT: " ".join(str(Fault.parse(each)) for each in faults), FILE: str(marker)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """A process stands (or died) at a point."""

    point: Point
    detail: str
    pid: int  # of the very process: a child, where the command forks


def wait_for_hit(marker: Path, process: Process, *, number: int = 0, timeout: float = 20) -> Hit:
    """Wait until the fault strikes.

    Args:
        marker: as in `environment`.
        process: the command that was started with it.
        number: which of its faults, from 0.
        timeout: seconds.

    Raises:
        ProcessFailed: the point was not reached: the command ended first, or time is over.
    """
    deadline, marker = time.monotonic() + timeout, _numbered(marker, number)
    while True:
        ended = process.poll()  # before the look at the file: it may strike and die in between
        if marker.exists():
            return _hit(json.loads(marker.read_text(encoding="utf-8")))
        if ended is not None:
            raise process.failure(f"ended with {ended} before it reached the point")
        if time.monotonic() > deadline:
            raise process.failure(f"did not reach the point within {timeout:g} s")
        time.sleep(0.02)


def resume(marker: Path, *, number: int = 0) -> None:
    """Let a process go on that pauses at its point."""
    _go(_numbered(marker, number)).touch()


def _numbered(marker: Path, number: int) -> Path:
    return marker.with_name(f"{marker.name}.{number}") if number else marker


def _go(marker: Path) -> Path:
    return marker.with_name(f"{marker.name}.go")


def _hit(said: Mapping[str, object]) -> Hit:
    return Hit(point=Point(str(said["point"])), detail=str(said["detail"]), pid=int(str(said["pid"])))


def _write(marker: Path, said: Mapping[str, object]) -> None:
    """All of the file or nothing, for whoever waits for it."""
    draft = marker.with_name(f".{marker.name}.{os.getpid()}")
    draft.write_text(json.dumps(said), encoding="utf-8")
    draft.replace(marker)
