"""Retention: finished sagas are archived after a while, and removed, a small batch at a time.

A saga that was pruned leaves its key behind: `start()` with that key still finds it, and a late signal for it is
dropped. `Pruner` does the work beside a relay or a worker, for a small share of the time; `prune` does all of it now.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import psycopg

from sagas import clock
from sagas.ports import Connection, Store
from sagas.settings import Settings
from sagas_outbox.link import Link
from sagas_outbox.queries import query, run

log = logging.getLogger("sagas.retention")

PACKAGE: Final = "sagas.store"
BATCH: Final = 200  # sagas in one statement that somebody waits for
SHARE: Final = 0.025  # of the time of one connection, when done beside other work
FEWEST, MOST = 5, 500  # sagas in one statement beside other work; MOST are left out one by one
AIM: Final = 0.1  # seconds that such a statement should take: of five sagas it takes 10 ms, of 200 not 100
IDLE: Final = 60.0  # seconds until another look when nothing is old enough
# classes and codes of errors that one saga may be to blame for: its data, what refers to it, its size, a trigger
ITS_OWN: Final = frozenset({"22", "23", "54", "P0", "XX", "53200", "57014"})
STRAINED: Final = frozenset({"53200", "57014"})  # of these: out of memory or time, which a busy server is as well
NO_JIT: Final = "set local jit = off"  # compiling takes longer than all the rest, and is not shared between statements
# else a batch may read and sort all that is left, or read the keys of other names
BY_INDEX: Final = "set local enable_sort = off; set local plan_cache_mode = force_custom_plan"
DAY: Final = timedelta(days=1).total_seconds()


@dataclass(frozen=True, kw_only=True, slots=True)
class Old:
    """Which sagas are pruned, and how."""

    age: float  # seconds since they ended, at least
    archive: bool  # keep them in `sagas_archive`
    name: str | None = None  # only sagas of this name
    wait: bool = False  # while somebody else prunes; else there is nothing to do meanwhile


class Batches:
    """How many sagas to prune at once, and which to leave out.

    One that cannot be pruned, because its log is too large for one value, say, must not keep all the others: where a
    batch fails the next one is smaller, until that saga stands alone; then it is left out. However many those are, a
    statement is told of a few: everything that ended before the last of them is passed over instead.

    Args:
        size: of the first.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.after: datetime | None = None  # what ended before is passed over
        self.left_out: dict[UUID, datetime] = {}  # when they ended; those that `after` does not pass over
        self.on_left_out: Callable[[str], None] = lambda why: None  # told of each, with its name and key
        self.began = time.monotonic()
        self._slow: UUID | None = None  # with which the server took too long, or too much

    def shrink(self, problem: psycopg.Error) -> bool:
        """A batch has failed: take fewer; returns whether that was one saga, which is to blame."""
        alone = self.size == 1 and its_own(problem)
        self.size = max(1, self.size // 4)
        return alone

    def leave_out(self, connection: Connection, old: Old, problem: psycopg.Error) -> bool:
        """Pass over the saga that is next, which has just failed; returns whether there was one.

        Where the server may be to blame as well, that takes two failures.
        """
        found = _prune(connection, old, limit=1, batches=self, only_say=True)
        for saga_id, name, key, ended in found:
            if problem.sqlstate in STRAINED and self._slow != saga_id:
                self._slow = saga_id
                continue
            why = problem.diag.message_primary or problem
            said = f"saga {name} {saga_id} (key {key!r}) cannot be pruned: {why}"
            log.warning("%s", said)
            self.on_left_out(said)
            self._pass_over(saga_id, ended)
        return bool(found)

    def _pass_over(self, saga_id: UUID, ended: datetime) -> None:
        self.left_out[saga_id] = ended
        if len(self.left_out) >= MOST:
            self.after = max(self.left_out.values())
            self.left_out = {each: at for each, at in self.left_out.items() if at == self.after}


def its_own(problem: psycopg.Error) -> bool:
    """Whether this may be the fault of a saga, its size included, and not of the server, or of who is beside us."""
    state = problem.sqlstate or ""
    return state[:2] in ITS_OWN or state in ITS_OWN


def prune_batch(connection: Connection, old: Old, *, limit: int = BATCH, batches: Batches | None = None) -> list[UUID]:
    """Archive and remove at most `limit` sagas; returns which.

    Args:
        connection: autocommit.
        old: which sagas.
        limit: how many at most.
        batches: knows which to leave out.
    """
    return [saga_id for saga_id, *_ in _prune(connection, old, limit=limit, batches=batches or Batches(limit))]


def _prune(
    connection: Connection, old: Old, *, limit: int, batches: Batches, only_say: bool = False
) -> list[tuple[UUID, str, str, datetime]]:
    """The id, name, key and end of each; nothing is changed where that is only asked for."""
    parameters = {
        "age": old.age, "archive": old.archive, "name": old.name, "limit": limit, "after": batches.after,
        "without": list(batches.left_out), "only_say": only_say, "now": clock.now(),
    }  # fmt: skip
    with connection.transaction():
        connection.execute(NO_JIT)
        if old.wait:
            run(connection, query(PACKAGE, "prune_wait"), {})
        return run(connection, query(PACKAGE, "prune"), parameters).fetchall()


def prune(connection: Connection, old: Old, batches: Batches | None = None) -> Iterator[int]:
    """Prune until nothing is left that is old enough; yields the number of sagas in each batch.

    Args:
        connection: autocommit.
        old: which sagas.
        batches: how many at a time; tells which are left out.

    Raises:
        psycopg.Error: for another reason than one saga.
    """
    old, batches = replace(old, wait=True), batches or Batches(BATCH)
    most = batches.size
    while True:
        try:
            found = prune_batch(connection, old, limit=batches.size, batches=batches)
        except psycopg.Error as problem:
            alone = batches.shrink(problem)
            if not its_own(problem) or (alone and not batches.leave_out(connection, old, problem)):
                raise
            continue
        if not found:
            break
        batches.size = min(most, batches.size * 2)
        yield len(found)
    run(connection, query(PACKAGE, "prune_left"), {"limit": BATCH})


def prune_keys(connection: Connection, *, age: float, name: str | None = None, limit: int = 1000) -> Iterator[int]:
    """Forget keys of sagas that ended long ago; yields the number of keys in each batch.

    A key of which a later run is there, or is to be remembered, stays.

    Args:
        connection: autocommit.
        age: seconds since they ended, at least.
        name: only keys of sagas of this name.
        limit: how many in one statement.
    """
    given = {"age": age, "name": name, "limit": limit, "now": clock.now()}
    last, count = ("", "", 0), limit
    while count == limit:
        after = dict(zip(("after_name", "after_key", "after_run"), last, strict=True))
        with connection.transaction():
            connection.execute(NO_JIT)
            connection.execute(BY_INDEX)
            found = run(connection, query(PACKAGE, "prune_keys"), given | after).fetchone()
        if found is None:
            return
        count, *last = found
        yield count


def keys_ahead(connection: Connection, *, age: float, name: str | None = None) -> int:
    """How many keys `prune_keys` would forget."""
    parameters = {"age": age, "name": name, "now": clock.now()}
    ((found,),) = run(connection, query(PACKAGE, "prune_keys_ahead"), parameters).fetchall()
    return int(found)


def ahead(connection: Connection, *, age: float, name: str | None = None) -> int:
    """How many sagas are old enough; some of them may have to stay."""
    (found,) = run(connection, query(PACKAGE, "prune_ahead"), {"age": age, "name": name, "now": clock.now()}).fetchall()
    return int(found[0])


class Pruner:
    """Prunes beside other work, in a thread with a connection of its own. Several may run: one prunes at a time.

    Args:
        store: where.
        idle: seconds until another look when nothing is old enough.
    """

    def __init__(self, store: Store, *, idle: float = IDLE) -> None:
        self._store, self._idle = store, idle
        self._link = Link(store.connect)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._batches = Batches(FEWEST)
        self.on_pass: Callable[[int], None] = lambda pruned: None  # told after each pass

    def start(self) -> None:
        """Begin, unless the settings say that nothing is pruned."""
        if self._store.settings.prune:
            self._thread = threading.Thread(target=self._run, name="sagas-prune", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End after the statement that runs."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        self._link.close()

    def _run(self) -> None:
        pause = min(self._idle, 1.0)
        while not self._stop.wait(pause):
            try:
                pause = self.run_once()
            except psycopg.Error as problem:
                log.warning("nothing is pruned for now: %s", problem)
                pause = self._idle
            except Exception:  # of whatever finds out how to connect, say: this thread must not end
                log.exception("nothing is pruned for now")
                pause = self._idle

    def run_once(self) -> float:
        """One small batch; returns the seconds to wait, so that all of it takes a small share of the time."""
        settings, batches, began = self._store.settings, self._batches, time.monotonic()
        old, size = Old(age=age_of(settings), archive=settings.archive), batches.size
        try:
            found = self._batch(old, size)
        except psycopg.Error as problem:
            alone = batches.shrink(problem)
            if not its_own(problem) or (alone and not self._leave_out(old, problem)):
                raise
            return _rest(time.monotonic() - began)
        took = time.monotonic() - began
        if found == size:  # as many as take about `AIM`
            batches.size = max(FEWEST, min(MOST, int(size * min(2.0, AIM / max(took, 1e-4)))))
        if found:
            log.debug("%d sagas that had ended %d days ago were pruned", found, settings.prune_after_days)
        else:
            self._link.close()  # for a minute: one connection less
            if began - batches.began > DAY:  # what was in the way may be gone
                self._batches = Batches(FEWEST)
        self.on_pass(found)
        return _rest(took) if found else self._idle

    def _batch(self, old: Old, size: int) -> int:
        with self._bounded() as connection:
            found = prune_batch(connection, old, limit=size, batches=self._batches)
            if not found:
                run(connection, query(PACKAGE, "prune_left"), {"limit": size})
        return len(found)

    def _leave_out(self, old: Old, problem: psycopg.Error) -> bool:
        with self._bounded() as connection:
            return self._batches.leave_out(connection, old, problem)

    @contextmanager
    def _bounded(self) -> Iterator[Connection]:
        """The connection, in a transaction that neither waits nor works for long."""
        with self._link.use() as connection, connection.transaction():
            connection.execute("set local lock_timeout = '500ms'")
            connection.execute("set local statement_timeout = '10s'")
            yield connection


def _rest(took: float) -> float:
    """Seconds to wait after so many of work."""
    return took * (1 - SHARE) / SHARE


@contextmanager
def pruning(store: Store) -> Iterator[Pruner]:
    """A pruner that runs for as long as the block does."""
    pruner = Pruner(store)
    pruner.start()
    try:
        yield pruner
    finally:
        pruner.stop()


def age_of(settings: Settings) -> float:
    """Seconds since its end after which a saga is pruned."""
    return settings.prune_after_days * DAY
