"""Measuring one database: what the metrics, `sagas stats` and `sagas top` show, read from Postgres each time.

What costs more with more sagas is only what has not ended: counters are kept by workers (`sagas.tally`), finished
sagas are not looked at.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.rows import namedtuple_row

from sagas import clock, stuck
from sagas import metric_list as m
from sagas.definition import Saga
from sagas.machine import TERMINAL
from sagas.metric_list import Metric
from sagas.ports import Connection
from sagas.registry import registry
from sagas.settings import Settings
from sagas.tally import BODY, BUCKETS, FIRST, UP_TO
from sagas_outbox.queries import query

PACKAGE: Final = "sagas.store"
MOST_STUCK: Final = 10_000  # that are counted

Rows = Callable[[str, dict[str, Any]], Sequence[Any]]  # what a named query finds


class Sample(NamedTuple):
    """One value of one metric."""

    metric: Metric
    labels: tuple[str, ...]
    value: float
    buckets: tuple[tuple[str, float], ...] = ()  # of a histogram; `value` is the sum of seconds then


def rows_of(connection: Connection) -> Rows:
    """Reads named queries on a connection."""

    def rows(name: str, parameters: dict[str, Any]) -> Sequence[Any]:
        cursor = psycopg.Cursor(connection, row_factory=namedtuple_row)
        return cursor.execute(query(PACKAGE, name), parameters).fetchall()

    return rows


def find_stuck(rows: Rows, settings: Settings, *, limit: int, name: str | None = None) -> Sequence[Any]:
    """The sagas that are stuck, newest first: id, name, version, key, reason, since.

    Args:
        rows: reads named queries.
        settings: of the store.
        limit: how many at most.
        name: only sagas of this name.
    """
    given = stuck.limits(registry.definitions(), settings) | {"limit": limit, "name": name, "now": clock.now()}
    return rows("stuck", given)


def measure(rows: Rows, settings: Settings) -> Iterator[Sample]:
    """Every value of every metric.

    Args:
        rows: reads named queries.
        settings: of the store.
    """
    began = time.monotonic()
    under_way = rows("measure_open", {})
    yield from counters(rows("tallies", {}), under_way)
    yield from _open(under_way)
    found = Counter((each.name, each.reason) for each in find_stuck(rows, settings, limit=MOST_STUCK))
    for (name, reason), count in sorted(found.items()):
        yield Sample(m.STUCK, (name, reason), count)
    yield from _queues(rows("measure_queues", {}))
    for each in rows("measure_messages", {}):
        yield Sample(m.MESSAGES_WAITING, (each.destination,), each.waiting)
        yield Sample(m.MESSAGES_DEAD, (each.destination,), each.dead)
        yield Sample(m.MESSAGES_AGE, (each.destination,), each.oldest_seconds)
    ((late,),) = rows("measure_timers", {})
    yield Sample(m.TIMER_LAG, (), late)
    ((behind,),) = rows("measure_schedules", {})
    yield Sample(m.SCHEDULER_LAG, (), behind)
    for each in rows("measure_processes", {}):
        yield Sample(m.PROCESSES, (each.kind, "alive"), each.alive)
        yield Sample(m.PROCESSES, (each.kind, "missing"), each.missing)
        yield Sample(m.PROCESSES, (each.kind, "failing"), each.failing)
    ((archived,),) = rows("archive_estimate", {})
    yield Sample(m.ARCHIVED, (), archived)
    yield Sample(m.MEASURED, (), time.monotonic() - began)


def counters(tallies: Sequence[Any], under_way: Sequence[Any]) -> Iterator[Sample]:
    """What workers have counted, as metrics. A saga of which nothing is recorded yet has been started too."""
    counted: dict[tuple[str, str, str], Any] = {(each.name, each.step, each.what): each for each in tallies}
    started = Counter({name: each.count for (name, _, what), each in counted.items() if what == FIRST})
    started.update(_fresh(under_way))
    for name, count in sorted(started.items()):
        yield Sample(m.STARTED, (name,), count)
    ends = {status.value for status in TERMINAL}
    for (name, _, what), each in counted.items():
        if what in ends:
            yield Sample(m.ENDED, (name, what), each.count)
    for metric in m.COUNTERS:
        yield from _added_up(metric, tallies)
    yield Sample(m.STALE_CLAIMS, (), sum(each.count for each in tallies if each.what in m.STALE_CLAIMS.counts))
    yield from _bodies(counted)


def never_counted(definitions: Iterable[type[Saga[Any]]]) -> Iterator[Sample]:
    """Every counter of what may yet happen, at zero: an increase from nothing is one that no alert sees.

    Args:
        definitions: all that this process knows.
    """
    for each in definitions:
        name = each.saga_name
        yield Sample(m.STARTED, (name,), 0)
        yield from (Sample(m.ENDED, (name, status.value), 0) for status in TERMINAL)
        for metric in m.COUNTERS:
            if metric.labels == ("name",):
                yield Sample(metric, (name,), 0)
            else:
                yield from (Sample(metric, (name, step.name), 0) for step in each.plan.steps)


def _fresh(under_way: Sequence[Any]) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for each in under_way:
        found[each.name] += each.fresh
    return found


def _added_up(metric: Metric, tallies: Sequence[Any]) -> Iterator[Sample]:
    found: Counter[tuple[str, ...]] = Counter()
    for each in tallies:
        if each.what in metric.counts:
            found[(each.name, each.step)[: len(metric.labels)]] += each.count
    for labels, count in sorted(found.items()):
        yield Sample(metric, labels, count)


def _bodies(counted: Mapping[tuple[str, str, str], Any]) -> Iterator[Sample]:
    for (name, step, what), each in sorted(counted.items()):
        if not what.startswith(BODY):
            continue
        direction, total, buckets = what.removeprefix(BODY), 0, []
        for bound in BUCKETS:
            slot = counted.get((name, step, f"{UP_TO}{direction}:{bound:g}"))
            total += slot.count if slot else 0
            buckets.append((f"{bound:g}", float(total)))
        buckets.append(("+Inf", float(each.count)))
        yield Sample(m.SECONDS, (name, step, direction), each.seconds, tuple(buckets))


def _open(under_way: Sequence[Any]) -> Iterator[Sample]:
    by_name: dict[str, Counter[Metric]] = {}
    oldest: dict[str, float] = {}
    for each in under_way:
        yield Sample(m.OPEN, (each.name, each.status), each.sagas)
        found = by_name.setdefault(each.name, Counter())
        found.update({
            m.WAITING: each.waiting, m.FAILING: each.failing, m.PARKED: each.parked, m.PAUSED: each.paused,
        })  # fmt: skip
        oldest[each.name] = max(oldest.get(each.name, 0.0), each.oldest_seconds)
    for name, counts in sorted(by_name.items()):
        for metric, count in counts.items():
            yield Sample(metric, (name,), count)
        yield Sample(m.OLDEST, (name,), oldest[name])


def _queues(queues: Sequence[Any]) -> Iterator[Sample]:
    for each in queues:
        yield Sample(m.DUE, (each.queue,), each.due)
        yield Sample(m.LATER, (each.queue,), each.later)
        yield Sample(m.PUBLISHED, (each.queue,), each.published)
        yield Sample(m.UNSERVED, (each.queue,), each.unserved)
        yield Sample(m.RUNNING, (each.queue,), each.running)
        yield Sample(m.EXPIRED_NOW, (each.queue,), each.expired)
        yield Sample(m.QUEUE_AGE, (each.queue,), each.oldest_seconds)
        yield Sample(m.RELAY_LAG, (each.queue,), each.unclaimed_seconds)
