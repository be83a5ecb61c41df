"""One run: start everything, let it rage, make all good, wait until it is quiet, judge."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from sagas.schedules import table
from sagas.testing.processes import ProcessFailed
from tests.chaos.books import IDLE, OPEN, SHOWN, TERMINAL, Books, busy, look, story
from tests.chaos.judge import Wrong, judge
from tests.chaos.load import Load
from tests.chaos.plan import strikes, wishes
from tests.chaos.scene import Scene, at_port
from tests.chaos.settings import LEASE
from tests.chaos.storm import Storm


@dataclass(frozen=True, kw_only=True)
class Size:
    """How long a run is.

    Args:
        orders: how many are placed.
        seconds: for which it rages.
        every: seconds from one strike to the next, on average.
        quiet_within: seconds after which everything has to have ended.
        children: pool processes of each Celery worker.
    """

    orders: int
    seconds: float
    every: float
    quiet_within: float
    children: int = 2

    @classmethod
    def of(cls, minutes: float) -> Size:
        """A long one."""
        return cls(orders=int(minutes * 700), seconds=minutes * 60, every=2.0, quiet_within=90 + minutes * 60)


SHORT = Size(orders=80, seconds=14, every=0.9, quiet_within=60, children=1)


@dataclass
class Report:
    """What came of a run."""

    seed: int
    size: Size
    wrong: list[Wrong] = field(default_factory=list)
    done: list[str] = field(default_factory=list)  # strikes
    stories: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    figures: dict[str, object] = field(default_factory=dict)
    logs: str = ""

    def __str__(self) -> str:
        head = f"chaos, seed {self.seed}: " + (f"{len(self.wrong)} things are wrong" if self.wrong else "all is well")
        told = [head, *(f"  {name}: {value}" for name, value in self.figures.items())]
        told += [f"  NOT RUN: {what}" for what in self.not_run]
        if self.wrong:
            told += ["What is wrong:", *(f"  {each}" for each in self.wrong[:40])]
            told += ["What happened until then:", *self.done, "Sagas concerned:", *self.stories]
            told += ["What the processes said last:", self.logs]
        return "\n".join(told)


def run(seed: int, size: Size, connect: Callable[[str], None]) -> Report:
    """Play one run; whatever is wrong is in its report.

    Args:
        seed: what everything is drawn from.
        size: how long it is.
        connect: told the URL of the database that orders are placed in.
    """
    report, begun = Report(seed, size), time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as directory,
        Scene(Path(directory), children=size.children) as scene,
    ):
        connect(at_port(scene.url, scene.database.port))
        report.not_run = scene.not_run
        report.figures["servers and tables after"] = _since(begun)
        storm = Storm(scene, strikes(seed, size.seconds, size.every, LEASE))
        try:
            _play(scene, storm, report)
        except (AssertionError, ProcessFailed) as problem:
            report.wrong.append(Wrong(f"{type(problem).__name__}: {problem}"))
        report.done = storm.done
        if report.wrong:
            report.stories = _stories(scene, report.wrong)
            report.logs = "\n".join(line[-600:] for line in scene.processes.report().splitlines()[-150:])
    return report


def _play(scene: Scene, storm: Storm, report: Report) -> None:
    size, begun = report.size, time.monotonic()
    asked = wishes(report.seed, size.seconds, size.orders)
    declined = [{"fault": "refuse", "order": each.order + each.decline} for each in asked if each.decline is not None]
    scene.bank.script(*declined, *_manners(report.seed))  # a refusal comes before anything else can go wrong
    scene.start_all()
    report.figures["started after"] = _since(begun)
    load = Load(scene, asked)
    since = time.monotonic()
    load.start(since)
    storm.start(since)
    load.join(size.seconds + size.quiet_within)
    storm.end()
    if storm.error is not None:
        raise storm.error
    report.figures["raged for"] = _since(since)
    scene.bank.behave()
    scene.bank.script(*declined)
    since = time.monotonic()
    report.wrong += _until_quiet(scene, storm, size.quiet_within)
    report.figures["quiet after"] = _since(since)
    since = time.monotonic()
    report.wrong += [Wrong(each) for each in scene.end_all()]
    report.figures["ended after"] = _since(since)
    books = look(scene)
    report.wrong += judge(books, load.committed, load.rolled_back)
    report.figures |= _figures(books, load, storm, scene)


def _manners(seed: int) -> list[dict[str, object]]:
    """What the bank does to a share of all requests, each a number of times."""
    shares = (
        ("charge", "lose_reply", 0.06), ("charge", "error", 0.06), ("charge", "slow", 0.25), ("charge", "hang", 0.01),
        ("refund", "lose_reply", 0.10), ("refund", "error", 0.10),
    )  # fmt: skip
    return [
        {"on": on, "fault": fault, "proportion": share, "seed": seed + number, "times": 1, "seconds": 0.4}
        for number, (on, fault, share) in enumerate(shares)
    ]


def _until_quiet(scene: Scene, storm: Storm, within: float) -> list[Wrong]:
    """Wait until nothing is to be done any more; what still is, if it takes too long."""
    deadline = time.monotonic() + within
    with psycopg.connect(scene.url, autocommit=True) as connection:
        table.pause(connection, "chaos.tick", reason="the run is over")
        while left := busy(connection):
            if time.monotonic() > deadline:
                shown = ", ".join(row[0] for row in connection.execute(OPEN))
                return [Wrong(f"after {within:g} s without any fault {left} rows are still at work: {shown}")]
            storm.watch()
            time.sleep(0.2)
        return [Wrong(f"idle in a transaction: {row}") for row in connection.execute(IDLE)]


def _figures(books: Books, load: Load, storm: Storm, scene: Scene) -> dict[str, object]:
    ends = Counter(row.status for row in books.sagas)
    return {
        "strikes": len(storm.strikes),
        "processes": len(scene.processes.processes),
        "ended by themselves": ", ".join(storm.unasked) or "none",
        "orders": f"{len(load.committed)} committed, {len(load.rolled_back)} rolled back",
        "wishes": f"{len(load.wishes)} in {load.tries} tries",
        "sagas": ", ".join(f"{many} {status}" for status, many in sorted(ends.items())),
        "rightly parked": sum(row.status not in TERMINAL for row in books.sagas),
        "log": f"{sum(books.bank.values()) / 100:.2f} at the bank, {sum(books.cents.values()) / 100:.2f} in our books",
        "letters": f"{sum(1 for _, what in books.lines if what == 'letter')} of {len(load.committed)} taken",
    }


def _stories(scene: Scene, wrong: list[Wrong]) -> list[str]:
    ids = list(dict.fromkeys(each.saga for each in wrong if each.saga is not None))[:SHOWN]
    try:
        with psycopg.connect(scene.url, autocommit=True) as connection:
            if not ids:
                query = "select id from sagas_saga where finished_at is null and status <> 'parked' limit %s"
                ids = [row[0] for row in connection.execute(query, [SHOWN])]
            return [story(connection, id) for id in ids]
    except psycopg.Error as problem:
        return [f"(the database cannot be read: {problem})"]


def _since(moment: float) -> str:
    return f"{time.monotonic() - moment:.1f} s"
