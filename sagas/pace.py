"""How long bodies take: measured by workers, read by whoever sizes messages."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

import psycopg

from sagas.events import Direction, Work
from sagas.registry import registry
from sagas.store import rows
from sagas.store.rows import Connection
from sagas.takeover import has_one_attempt

log = logging.getLogger("sagas.worker")

Subject = tuple[str, str, str]  # saga name, step, direction
SAVE_EVERY = 1.0  # seconds
WEIGHT = 0.2  # of one new measurement
OUTLIER, SLACK = 4.0, 0.01  # one measurement counts as so many times the mean and so many seconds more, at most
WEIGHT_DOWN = 0.5  # of one below the mean by more than that: a slow step is seldom run, and may have become quick
UNMEASURED = float("inf")


def shared_paces(connection: Connection) -> dict[Subject, float]:
    """Mean body times of the work that may share a message. Work with one attempt only is left out: it travels alone,
    like work that nobody has measured."""
    return {subject: mean for subject, mean in rows.paces(connection).items() if not _alone(*subject)}


def _alone(name: str, step: str, direction: str) -> bool:
    plans = (registry.get(name, version).plan for version in registry.versions(name))
    return any(has_one_attempt(plan, Work(step, Direction(direction))) for plan in plans if step in plan.by_name)


class Pace:
    """Running means of body times, in seconds. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._means: dict[Subject, float] = {}
        self._unsaved: dict[Subject, float] = {}
        self._saved_at = 0.0

    def note(self, subject: Subject, seconds: float) -> None:
        """Take one measurement in."""
        with self._lock:
            before = self._means.get(subject, seconds)
            seconds = min(seconds, OUTLIER * before + SLACK)  # a body that was held up once says little of the next
            weight = WEIGHT if seconds * OUTLIER >= before else WEIGHT_DOWN
            self._means[subject] = self._unsaved[subject] = before + weight * (seconds - before)

    def mean(self, subject: Subject) -> float:
        """Seconds a body takes; infinite when nobody has measured one."""
        return self._means.get(subject, UNMEASURED)

    def known(self) -> Mapping[Subject, float]:
        """The means so far."""
        return self._means

    def save_if_due(self, connection: Connection) -> None:
        """Write what changed to the database, about once a second."""
        now = time.monotonic()
        with self._lock:
            if not self._unsaved or now - self._saved_at < SAVE_EVERY:
                return
            unsaved, self._unsaved, self._saved_at = self._unsaved, {}, now
        try:
            with connection.transaction():
                connection.execute("set local lock_timeout = '500ms'")
                rows.save_paces(connection, unsaved)
        except psycopg.Error as problem:  # only messages are sized by it
            log.info("how long bodies take could not be saved: %s", problem)
