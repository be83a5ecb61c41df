"""Counting what happens: in memory, added to `sagas_tally` about once a second.

Counters in the database are the same whichever process is asked, survive restarts of prefork children, and only ever
grow, however much is pruned. A worker that is killed takes what it counted in its last second along.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import psycopg

from sagas.events import Entry, Source
from sagas.states import State
from sagas.store.rows import Connection, Damaged, Delivery, Kept
from sagas_outbox.queries import query, run

log = logging.getLogger("sagas.worker")

PACKAGE: Final = "sagas.store"
SAVE_EVERY: Final = 1.0  # seconds

Subject = tuple[str, str, str]  # saga name, step, what

FIRST: Final = "first"  # the first thing that is recorded of a saga
RETRIES: Final = "retries"  # failures that are tried again
UNKNOWN: Final = "unknown"  # entries about an attempt whose outcome nobody knows
DEDUPE: Final = "dedupe"  # answers that the dedupe table had
REPAIRS: Final = "repairs"  # what a person asked for
EXPIRED: Final = "expired"  # begun again, since the claim of whoever had begun it ended
STALE: Final = "stale"  # named by a message, and gone or taken by then
BODY: Final = "body:"  # and the direction: bodies, with the seconds they took
UP_TO: Final = "up_to:"  # and direction and seconds: bodies that took no longer
BY_MINUTE: Final = (RETRIES, EXPIRED)  # also counted for each minute of the last hour
BUCKETS: Final = (0.01, 0.1, 1.0, 10.0, 60.0)  # seconds


class _Bodies:
    """How long the bodies of one step took."""

    __slots__ = ("count", "seconds", "up_to")

    def __init__(self) -> None:
        self.count, self.seconds, self.up_to = 0, 0.0, [0] * len(BUCKETS)


class Tally:
    """What this process has counted and not yet written. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[Subject, int] = defaultdict(int)
        self._bodies: defaultdict[Subject, _Bodies] = defaultdict(_Bodies)
        self._unsaved: dict[Subject, tuple[int, float]] = {}  # what could not be written
        self._saved_at = time.monotonic()

    def add(self, name: str, step: str, what: str, count: int = 1) -> None:
        """Count something."""
        with self._lock:
            self._counts[name, step, what] += count

    def recorded(self, written: Iterable[tuple[str, State, Sequence[Entry]]]) -> None:
        """Count what was written to logs: of each saga its name, how it stood, and the new lines."""
        with self._lock:
            for each in written:
                self._recorded(*each)

    def _recorded(self, name: str, before: State, entries: Sequence[Entry]) -> None:
        counts = self._counts
        for entry in entries:
            step, data = entry.step or "", entry.data
            counts[name, step, entry.kind] += 1
            if data.retry_in is not None:
                counts[name, step, RETRIES] += 1
            if data.unknown:
                counts[name, step, UNKNOWN] += 1
            if data.source is Source.DEDUPE:
                counts[name, step, DEDUPE] += 1
            if data.actor:
                counts[name, "", REPAIRS] += 1
        if entries and before.seq == 0:
            counts[name, "", FIRST] += 1

    def begun(self, found: Sequence[Delivery | Damaged | Kept], named: int) -> None:
        """Count what a begin statement has found.

        Args:
            found: what was begun.
            named: rows that the message named; 0: there was no message.
        """
        if named > len(found):
            self.add("", "", STALE, named - len(found))
        for each in found:
            if isinstance(each, Delivery) and each.attempt is not None and each.attempt.deliveries > 1:
                self.add(each.name, each.attempt.step, EXPIRED)

    def body(self, subject: Subject, seconds: float) -> None:
        """Count a body and the time it took; `subject` is its saga name, step and direction."""
        with self._lock:
            found = self._bodies[subject]
            found.count += 1
            found.seconds += seconds
            bucket = bisect_left(BUCKETS, seconds)
            if bucket < len(BUCKETS):
                found.up_to[bucket] += 1

    @property
    def due(self) -> bool:
        """Whether something is to be written by now."""
        return bool(self._counts or self._bodies or self._unsaved) and time.monotonic() - self._saved_at >= SAVE_EVERY

    def save(self, connection: Connection) -> None:
        """Write what was counted; what cannot be written now is kept.

        Args:
            connection: autocommit.

        Raises:
            psycopg.OperationalError: the connection broke.
        """
        found = self._taken()
        if not found:
            return
        try:
            with connection.transaction():
                connection.execute("set local lock_timeout = '500ms'")
                run(connection, query(PACKAGE, "tally"), _columns(found))
                if minute := _by_minute(found):
                    run(connection, query(PACKAGE, "tally_minute"), minute)
        except psycopg.Error as problem:
            with self._lock:
                for key, (count, seconds) in found.items():
                    before = self._unsaved.get(key, (0, 0.0))
                    self._unsaved[key] = before[0] + count, before[1] + seconds
            if connection.broken:
                raise
            log.info("what was counted could not be saved yet: %s", problem)

    def _taken(self) -> dict[Subject, tuple[int, float]]:
        with self._lock:
            found, self._unsaved = self._unsaved, {}
            counts, self._counts = self._counts, defaultdict(int)
            bodies, self._bodies = self._bodies, defaultdict(_Bodies)
            self._saved_at = time.monotonic()
        lines = [(key, count, 0.0) for key, count in counts.items()]
        for (name, step, direction), each in bodies.items():
            lines.append(((name, step, BODY + direction), each.count, each.seconds))
            lines += [
                ((name, step, f"{UP_TO}{direction}:{bound:g}"), count, 0.0)
                for bound, count in zip(BUCKETS, each.up_to, strict=True)
                if count
            ]
        for key, count, seconds in lines:
            before = found.get(key, (0, 0.0))
            found[key] = before[0] + count, before[1] + seconds
        return found


def _by_minute(found: Mapping[Subject, tuple[int, float]]) -> dict[str, list[object]] | None:
    """What belongs to rates; None: nothing, as nearly always where all is well."""
    counts = dict.fromkeys(BY_MINUTE, 0)
    for (_, _, what), (count, _) in found.items():
        if what in counts:
            counts[what] += count
    some = {what: count for what, count in counts.items() if count}
    return {"whats": list(some), "counts": list(some.values())} if some else None


def _columns(found: Mapping[Subject, tuple[int, float]]) -> dict[str, list[object]]:
    return {
        "names": [key[0] for key in found], "steps": [key[1] for key in found], "whats": [str(key[2]) for key in found],
        "counts": [count for count, _ in found.values()], "seconds": [seconds for _, seconds in found.values()],
    }  # fmt: skip
