"""Ours: an embedded worker at full load, with and without the pruner at work beside it.

`python -m tests.benchmarks.ours_pruning SECONDS` prints a line for each. In tables full of sagas that ended long ago
one worker works off one backlog, and every half second the pruner, which keeps to its own pace, is let go on or held:
with, without, without, with, and so on. So both sides have the same tables, the same plans and the same moods of the
machine.
"""

from __future__ import annotations

import sys
import threading
import time
from itertools import cycle, islice
from uuid import uuid4

import psycopg

from sagas import Saga, external_step
from sagas.embedded import Embedded
from sagas.retention import Pruner
from sagas_django.store import DjangoStore
from tests.benchmarks.filling import fill_due, fill_finished
from tests.benchmarks.ours import clear, connection, transaction
from tests.benchmarks.report import Measurement
from tests.benchmarks.sagas import Noop, NoopInput
from tests.benchmarks.scripts import NotRun

OLD = 20_000  # sagas that may be pruned: more than are pruned meanwhile
DAYS = 400  # since they ended
BACKLOG = 4500  # sagas for each second; a machine that is faster has measured enough before the time is up
ENOUGH = 0.9  # share of the backlog that may be worked off: to the end of it nothing else changes
LEAST = 8  # slices that have to be measured
SLICE = 0.5  # seconds; short, since a busy machine has other moods every second
WARM_UP = 1.5  # seconds, with pruning
TRIALS = 8  # passes without rest after which the pruner has found out how many it can take
HELD = 0.02  # seconds until the pruner looks again whether it is held, and whether it has rested
BUSY = 0.0125  # share of the time that the pruner has to have been at work; it aims at 0.025
LEFT = "select count(*), (select count(*) from sagas_tombstone) from sagas_saga where key like 'finished-%'"
ORDER = (False, False, True, True)  # whether it prunes in the next slice; the first one does


class Counted(Saga[NoopInput], name="bench.counted", version=1):
    """Three external steps that do nothing but count."""

    done = 0

    @external_step(compensate=None)
    def first(self) -> None: ...

    @external_step(compensate=None)
    def second(self) -> None: ...

    @external_step(pivot=True)
    def third(self) -> None:
        with counting:
            Counted.done += 1


counting = threading.Lock()


class Held(Pruner):
    """A pruner that can be held, and says what it has done."""

    def __init__(self, store: DjangoStore) -> None:
        super().__init__(store)
        self.goes = threading.Event()
        self.pruned, self.passes, self.busy = 0, 0, 0.0
        self._rest, self._looked = 0.0, time.monotonic()
        self.at_work = threading.Lock()
        self.on_pass = self._note

    def run_once(self) -> float:
        """Nothing while it is held, which is no rest either."""
        with self.at_work:
            began, passed = time.monotonic(), time.monotonic() - self._looked
            self._looked = began
            if self.goes.is_set():
                self._rest -= passed
                if self._rest <= 0:
                    self._rest = super().run_once()
                    self._looked = time.monotonic()
                    self.busy += self._looked - began
            return HELD

    def try_out(self) -> None:
        """A pass without a rest."""
        self._rest = 0.0
        self.run_once()

    def _note(self, pruned: int) -> None:
        self.pruned += pruned
        self.passes += 1


def fill(count: int) -> None:
    """A backlog of so many, and sagas to prune."""
    clear()
    with connection.cursor() as cursor:
        cursor.execute(LEFT)
        left, gone = cursor.fetchone()
    key = f"model-{uuid4()}"
    with transaction.atomic():
        Counted.start(NoopInput(0), key=key)
    with psycopg.connect(DjangoStore("default").connect().info.dsn, autocommit=True) as own:
        fill_due(own, name=Counted.saga_name, key=key, count=count)
        fill_finished(own, Noop, OLD - left, days=DAYS, first=left + gone)


def main(seconds: float) -> None:
    """Measure both for so many seconds together."""
    backlog = int(BACKLOG * (seconds + WARM_UP))
    fill(backlog)
    embedded, pruner = Embedded(DjangoStore("default")), Held(DjangoStore("default"))
    worker = threading.Thread(target=embedded.run, daemon=True)
    pruner.goes.set()
    for _ in range(TRIALS):
        pruner.try_out()
    worker.start()
    pruner.start()
    time.sleep(WARM_UP)
    before = pruner.pruned, pruner.passes, pruner.busy
    done, took = {True: 0, False: 0}, {True: 0.0, False: 0.0}
    begun, had, prunes, slices = time.monotonic(), Counted.done, True, 0
    for after in islice(cycle(ORDER), len(ORDER) * max(1, round(seconds / SLICE / len(ORDER)))):
        time.sleep(max(0.0, begun + SLICE - time.monotonic()))
        with pruner.at_work:  # a pass is counted where it began, to its end
            now, done_now = time.monotonic(), Counted.done
            (pruner.goes.set if after else pruner.goes.clear)()
        took[prunes] += now - begun
        done[prunes] += done_now - had
        begun, had, prunes, slices = now, done_now, after, slices + 1
        if done_now > ENOUGH * backlog and slices % len(ORDER) == 0:
            break
    pruned, passes, busy = pruner.pruned - before[0], pruner.passes - before[1], pruner.busy - before[2]
    left = backlog - Counted.done
    pruner.stop()
    embedded.stop()
    worker.join(timeout=30)
    clear()
    if left <= 0 or slices < LEAST:
        raise NotRun(f"ours.pruning: the backlog was worked off after {slices} slices")
    if busy < BUSY * took[True]:
        raise NotRun(
            f"ours.pruning: only {pruned} sagas were pruned meanwhile, in {passes} passes that took {busy:.2f} s"
        )
    notes = {"pruned_per_second": round(pruned / took[True], 1), "passes": passes, "busy": round(busy / took[True], 4)}
    print(Measurement(name="ours.pruning", count=done[True], seconds=took[True], notes=notes).line())
    print(Measurement(name="ours.not_pruning", count=done[False], seconds=took[False]).line())


if __name__ == "__main__":
    main(float(sys.argv[1]))
