"""Watching sagas on the command line: which are stuck, what there is of what, logs as they are written."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import msgspec

from sagas import metric_list as m
from sagas import ports
from sagas.desk import Desk
from sagas.errors import InvalidInput
from sagas.measure import Sample, find_stuck, measure
from sagas.metric_list import Metric
from sagas.operate import entry_text, find, one_line, table
from sagas.operate_data import FACTS
from sagas.stuck import REMEDIES, Stuck

MOST_FOLLOWED: Final = 500  # sagas, where none is named
RATES: Final = (
    "started", "ended", "steps_done", "step_failures", "step_retries", "undos_done", "claim_expiries", "parked",
)  # fmt: skip
SOONEST: Final = 0.1  # seconds between two looks


@dataclass(frozen=True, kw_only=True, slots=True)
class Followed:
    """One log entry, with the saga it is about."""

    saga_id: UUID
    name: str
    key: str
    seq: int
    at: Any
    kind: str
    step: str | None
    attempt: int
    data: dict[str, Any] = field(default_factory=dict)


def stuck_lines(desk: Desk, found: Sequence[Any]) -> Iterator[str]:
    """Sagas that are stuck, as a table, and what to do about each kind."""
    if not found:
        yield f"no saga is stuck in {desk.name!r}"
        return
    words = desk.words
    head = ("why", "since", "id", "name", "key")
    yield from table([
        head,
        *((each.reason, f"{words.age(each.since)} ago", str(each.id), each.name, each.key) for each in found),
    ])  # fmt: skip
    for reason in dict.fromkeys(Stuck(each.reason) for each in found):
        yield f"{reason}: {REMEDIES[reason].replace('`sagas ', f'`{desk.command} ')}"


def stuck_sagas(desk: Desk, *, name: str | None, limit: int) -> Sequence[Any]:
    """The sagas that are stuck, newest first: id, name, version, key, reason, since."""
    return find_stuck(desk.rows, ports.store(desk.name).settings, limit=limit, name=name)


def samples(desk: Desk) -> list[Sample]:
    """Everything that is measured, now."""
    return list(measure(desk.rows, ports.store(desk.name).settings))


def as_data(found: Sequence[Sample]) -> dict[str, list[dict[str, Any]]]:
    """Samples for programs: for each metric its values with their labels."""
    data: dict[str, list[dict[str, Any]]] = {}
    for each in found:
        labels = dict(zip(each.metric.labels, each.labels, strict=True))
        data.setdefault(each.metric.shown, []).append({**labels, "value": each.value})
    return data


def stats_lines(desk: Desk, found: Sequence[Sample]) -> Iterator[str]:
    """Samples for people."""
    by_metric: dict[Metric, list[Sample]] = {}
    for each in found:
        by_metric.setdefault(each.metric, []).append(each)

    def total(metric: Metric, *labels: str) -> float:
        chosen = by_metric.get(metric, [])
        return sum(each.value for each in chosen if each.labels[: len(labels)] == labels)

    attention = {"stuck": total(m.STUCK), "parked": total(m.PARKED), "paused": total(m.PAUSED)}
    yield "attention " + ", ".join(f"{count:.0f} {what}" for what, count in attention.items())
    yield from _sagas(desk, by_metric, total)
    yield from _queue_lines(by_metric, total)
    kinds = [f"{each.value:.0f} {each.labels[0]}s {each.labels[1]}" for each in by_metric.get(m.PROCESSES, [])]
    yield f"processes {', '.join(kinds) or 'none has said that it is there'}"
    lags = f"timers {total(m.TIMER_LAG):.1f} s, schedules {total(m.SCHEDULER_LAG):.1f} s"
    yield f"lag       {lags}; archive about {total(m.ARCHIVED):.0f} sagas"


def _sagas(desk: Desk, by_metric: Mapping[Metric, list[Sample]], total: Any) -> Iterator[str]:
    names = sorted({
        each.labels[0] for metric in (m.OPEN, m.STARTED, m.ENDED) for each in by_metric.get(metric, []) if each.labels
    })  # fmt: skip
    if not names:
        yield f"sagas     none yet in {desk.name!r}"
        return
    yield ""
    open_by = {name: [each for each in by_metric.get(m.OPEN, []) if each.labels[0] == name] for name in names}
    ended_by = {name: [each for each in by_metric.get(m.ENDED, []) if each.labels[0] == name] for name in names}

    def told(found: list[Sample]) -> str:
        words = desk.words
        return ", ".join(f"{each.value:.0f} {words.word(words.STATUS, each.labels[1])}" for each in found) or "-"

    yield from table([
        ("name", "open", "stuck", "started", "ended"),
        *(
            (name, told(open_by[name]), f"{total(m.STUCK, name):.0f}", f"{total(m.STARTED, name):.0f}",
             told(ended_by[name]))
            for name in names
        ),
    ])  # fmt: skip


def _queue_lines(by_metric: Mapping[Metric, list[Sample]], total: Any) -> Iterator[str]:
    queues = [each.labels[0] for each in by_metric.get(m.DUE, [])]
    yield ""
    if not queues:
        yield "queues    empty"
        return
    columns = (m.DUE, m.PUBLISHED, m.RUNNING, m.EXPIRED_NOW, m.LATER)
    yield from table([
        ("queue", "due", "published", "running", "expired", "later", "oldest due"),
        *(
            (queue, *(f"{total(metric, queue):.0f}" for metric in columns), f"{total(m.QUEUE_AGE, queue):.1f} s")
            for queue in queues
        ),
    ])  # fmt: skip


def top(desk: Desk, *, interval: float, count: int | None) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """What there is, again and again: as lines, and as data; with rates from the second time on.

    Args:
        desk: where.
        interval: seconds between two looks.
        count: how often; None: until the end.

    Raises:
        InvalidInput: the interval is too short, or the count below 1.
    """
    _check_pace(interval, count)
    before: dict[str, float] = {}
    looked_at = 0.0
    done = 0
    while count is None or done < count:
        if done:
            time.sleep(interval)
        now, found = time.monotonic(), samples(desk)
        totals = {
            short: sum(each.value for each in found if each.metric.name == f"sagas_{short}") for short in RATES
        }  # fmt: skip
        rates = {short: (totals[short] - before[short]) / (now - looked_at) for short in RATES} if before else {}
        lines = list(stats_lines(desk, found))
        told = ", ".join(f"{rate:.1f} {short.replace('_', ' ')}" for short, rate in rates.items())
        lines.insert(0, f"a second  {told or 'known from the second look on'}")
        lines.insert(0, f"sagas of {desk.name!r}, every {interval:g} s, Ctrl-C ends it")
        yield lines, as_data(found) | {"rates": rates}
        before, looked_at, done = totals, now, done + 1


def tail(
    desk: Desk, wanted: Sequence[str], *, name: str | None, interval: float, count: int | None, since_start: bool
) -> Iterator[Followed]:  # fmt: skip
    """Log entries as they are written. Reading by time would lose those of transactions that commit late, so each saga
    is followed by the number of its last entry.

    Args:
        desk: where.
        wanted: the sagas to follow; empty: all that are open, and those that come.
        name: only sagas of this name.
        interval: seconds between two looks.
        count: how many looks; None: until the end.
        since_start: also the entries that are there already.

    Raises:
        InvalidInput: the interval is too short, or the count below 1.
    """
    _check_pace(interval, count)
    desk.check_ready()
    chosen = [find(desk, each).id for each in wanted]
    seen = dict.fromkeys(chosen, -1)
    if not since_start:
        seen = {id: desk.saga(id).seq for id in chosen} or _all(desk, name)
    newest = max(seen, default=UUID(int=0))  # ids are in order of time
    done = 0
    while count is None or done < count:
        if done:
            time.sleep(interval)
        there = dict(seen) if chosen else _all(desk, name)
        starts = {id: -1 if since_start or id > newest else seq for id, seq in there.items()} | seen
        for each in _entries(desk, starts):
            starts[each.saga_id] = each.seq
            yield each
        seen = {id: starts[id] for id in there}  # whatever has ended has been read to its end
        done += 1


def _all(desk: Desk, name: str | None) -> dict[UUID, int]:
    return {each.id: each.seq for each in desk.rows("tail_open", {"name": name, "limit": MOST_FOLLOWED})}


def _entries(desk: Desk, seen: Mapping[UUID, int]) -> Iterator[Followed]:
    given = {"ids": list(seen), "after": list(seen.values())}
    for row in desk.rows("tail_entries", given) if seen else ():
        yield Followed(
            saga_id=row.saga_id, name=row.name, key=row.key, seq=row.seq, at=row.at, kind=row.kind, step=row.step,
            attempt=row.attempt, data=msgspec.json.decode(row.data),
        )  # fmt: skip


def followed_text(desk: Desk, each: Followed) -> str:
    """A log entry as a line."""
    saga = f"{each.name}:{one_line(each.key)}"
    return f"{desk.words.clock(each.at)}  {saga}  {each.seq:>4}  {entry_text(each, desk.words)}".rstrip()


def followed_data(each: Followed) -> dict[str, Any]:
    """A log entry for programs, without payloads."""
    shown: dict[str, Any] = {name: each.data[name] for name in FACTS if name in each.data}
    return {
        "saga": each.saga_id, "name": each.name, "key": each.key, "seq": each.seq, "at": each.at, "kind": each.kind,
        "step": each.step, "attempt": each.attempt, **shown,
    }  # fmt: skip


def _check_pace(interval: float, count: int | None) -> None:
    if not SOONEST <= interval < math.inf:
        raise InvalidInput(f"--interval {interval}: seconds, at least {SOONEST}", path="interval")
    if count is not None and count < 1:
        raise InvalidInput(f"--count {count}: at least 1", path="count")
