"""Retention: finished sagas are archived after a while, and removed, a small batch at a time.

A saga that was pruned leaves its key behind: `start()` with that key still finds it, and a late signal for it is
dropped. `Pruner` does the work beside a relay or a worker, for a small share of the time; `prune` does all of it now.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec
import psycopg

from sagas import clock
from sagas.errors import InvalidInput
from sagas.ports import Connection, Store
from sagas.settings import Settings
from sagas_outbox.link import Link
from sagas_outbox.queries import query, run

log = logging.getLogger("sagas.retention")

PACKAGE: Final = "sagas.store"
BATCH: Final = 200  # sagas in one statement that somebody waits for
SHARE: Final = 0.025  # of the time of one connection, when done beside other work
FEWEST, MOST = 5, 500  # sagas in one statement beside other work
AIM: Final = 0.1  # seconds that such a statement should take: of five sagas it takes 10 ms, of 200 not 100
IDLE: Final = 60.0  # seconds until another look when nothing is old enough
NO_JIT: Final = "set local jit = off"  # compiling takes longer than all the rest, and is not shared between statements
DAY: Final = timedelta(days=1).total_seconds()
BLOCK: Final = 65_536  # bytes read at a time


def prune_batch(
    connection: Connection,
    *,
    age: float,
    archive: bool,
    limit: int = BATCH,
    name: str | None = None,
    wait: bool = False,
) -> list[UUID]:
    """Archive and remove at most `limit` sagas; returns which.

    Args:
        connection: autocommit.
        age: seconds since they ended, at least.
        archive: keep them in `sagas_archive`.
        limit: how many at most.
        name: only sagas of this name.
        wait: while somebody else prunes; else there is nothing to do meanwhile.
    """
    parameters = {"age": age, "archive": archive, "limit": limit, "name": name, "now": clock.now()}
    with connection.transaction():
        connection.execute(NO_JIT)
        if wait:
            run(connection, query(PACKAGE, "prune_wait"), {})
        return [row[0] for row in run(connection, query(PACKAGE, "prune"), parameters)]


def prune(
    connection: Connection, *, age: float, archive: bool, name: str | None = None, limit: int = BATCH
) -> Iterator[int]:
    """Prune until nothing is left that is old enough; yields the number of sagas in each batch."""
    while found := prune_batch(connection, age=age, archive=archive, name=name, limit=limit, wait=True):
        yield len(found)
    run(connection, query(PACKAGE, "prune_left"), {"limit": limit})


def prune_keys(connection: Connection, *, age: float, limit: int = 1000) -> Iterator[int]:
    """Forget keys of sagas that ended long ago; yields the number of keys in each batch.

    Args:
        connection: autocommit.
        age: seconds since they ended, at least.
        limit: how many in one statement.
    """
    parameters = {"age": age, "limit": limit, "now": clock.now()}
    while found := run(connection, query(PACKAGE, "prune_keys"), parameters).fetchall():
        yield len(found)


def ahead(connection: Connection, *, age: float, name: str | None = None) -> int:
    """How many sagas are old enough; some of them may have to stay."""
    (found,) = run(connection, query(PACKAGE, "prune_ahead"), {"age": age, "name": name, "now": clock.now()}).fetchall()
    return int(found[0])


def archived(connection: Connection) -> int:
    """How many sagas are in the archive."""
    ((found,),) = run(connection, query(PACKAGE, "archive_ahead"), {}).fetchall()
    return int(found)


def move_archive(connection: Connection, file: Path, *, keep: bool = False, limit: int = 100) -> Iterator[int]:
    """Append the archive to a file as JSON Lines, and empty it; yields the number of sagas in each batch.

    A batch is on disk before it leaves the database: a crash in between writes it twice, and loses nothing.

    Args:
        connection: autocommit.
        file: where to; it is appended to.
        keep: leave the archive in the database as it is.
        limit: sagas in one batch.

    Raises:
        InvalidInput: the file cannot be written.
    """
    last: UUID | None = None
    try:
        _end_last_line(file)
        with file.open("a", encoding="utf-8") as out:
            while found := run(
                connection, query(PACKAGE, "archive_batch"), {"after": last, "limit": limit}
            ).fetchall():  # fmt: skip
                out.writelines(f"{line}\n" for _, line in found)
                out.flush()
                os.fsync(out.fileno())
                ids = [row[0] for row in found]
                if not keep:
                    run(connection, query(PACKAGE, "archive_drop"), {"ids": ids})
                last = ids[-1]
                yield len(ids)
    except OSError as problem:
        raise InvalidInput(f"{file}: cannot be written: {problem}", path="file") from problem


def _end_last_line(file: Path) -> None:
    """Cut off a line that a crash has left half written: what it was about is still in the database."""
    if not file.is_file():
        return
    with file.open("rb+") as found:
        size = place = found.seek(0, os.SEEK_END)
        tail = b""
        while place and b"\n" not in tail:
            place = max(0, place - BLOCK)
            found.seek(place)
            tail = found.read(size - place)
        tail = tail.rpartition(b"\n")[2]
        try:
            if tail:
                msgspec.json.decode(tail)
                found.write(b"\n")  # of a file that somebody else has begun
        except msgspec.DecodeError:
            found.truncate(size - len(tail))


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
        self._batch = FEWEST
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
        settings = self._store.settings
        began = time.monotonic()
        with self._link.use() as connection, connection.transaction():
            connection.execute("set local lock_timeout = '500ms'")
            connection.execute("set local statement_timeout = '10s'")
            found = prune_batch(connection, age=age_of(settings), archive=settings.archive, limit=self._batch)
            if not found:
                run(connection, query(PACKAGE, "prune_left"), {"limit": self._batch})
        took = time.monotonic() - began
        if len(found) == self._batch:  # as many as take about `AIM`
            self._batch = max(FEWEST, min(MOST, int(self._batch * min(2.0, AIM / max(took, 1e-4)))))
        if found:
            log.debug("%d sagas that had ended %d days ago were pruned", len(found), settings.prune_after_days)
        else:
            self._link.close()  # for a minute: one connection less
        self.on_pass(len(found))
        return took * (1 - SHARE) / SHARE if found else self._idle


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
