"""Limits of queues that hold for all workers and relays together: how many steps at once, how many in a period.

One table says what holds (`sagas_queue`); it is asked wherever a step is begun. What settings declare is written there
by workers when they begin; what an operator has changed stays until it is reset.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
import psycopg
from psycopg.rows import class_row

from sagas.errors import ConfigurationError, InvalidInput
from sagas_outbox.encoding import briefly
from sagas_outbox.queries import query, run

PACKAGE: Final = "sagas.store"
RATE: Final = re.compile(r"(?P<count>\d{1,9})/(?P<times>\d{1,6})?(?P<unit>[smhd])")
SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MOST: Final = 1_000_000_000
LONGEST_NAME: Final = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What one queue is held to.

    Args:
        concurrency: how many of its steps may be at work at the same time; None: any number.
        rate: how many may begin in any period, such as ``"100/m"``, ``"5/s"``, ``"1000/h"`` or ``"30/10s"``; None: any.

    Raises:
        InvalidInput: one of them cannot be meant.
    """

    concurrency: int | None = None
    rate: str | None = None

    def __post_init__(self) -> None:
        given = self.concurrency
        if given is not None and (isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MOST):
            raise InvalidInput(
                f"concurrency={briefly(given)}: a whole number of at least 1, or none", path="concurrency"
            )
        if self.rate is not None and (not isinstance(self.rate, str) or self.count == 0 or self.period == 0):
            raise InvalidInput(
                f"rate={briefly(self.rate)}: N/s, N/m, N/h, N/d or N/10s: how many in which time", path="rate"
            )

    @property
    def count(self) -> int | None:
        """How many steps may begin in a period; 0: it cannot be read."""
        found = None if self.rate is None else RATE.fullmatch(self.rate)
        return int(found["count"]) if found else None if self.rate is None else 0

    @property
    def period(self) -> float | None:
        """That period in seconds; 0: it cannot be read."""
        found = None if self.rate is None else RATE.fullmatch(self.rate)
        return int(found["times"] or 1) * SECONDS[found["unit"]] if found else None if self.rate is None else 0.0


Declared = tuple[tuple[str, Limits], ...]  # by name


def declared(given: Any) -> Declared | None:
    """The setting `queues`, checked: limits by name of the queue; None: this process says nothing about queues.

    Args:
        given: as ``{"payments": {"concurrency": 5, "rate": "100/m"}}``; or what this returned before.

    Raises:
        ConfigurationError: it is something else, or a limit cannot be meant.
    """
    if given is None:
        return None
    if isinstance(given, tuple) and all(isinstance(each, tuple) and len(each) == 2 for each in given):
        given = dict(given)  # what this returned before
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"queues={briefly(given)}: a dict, such as {{'payments': {{'concurrency': 5}}}}")
    return tuple(sorted((_name(name), _limits(name, limits)) for name, limits in given.items()))


def _name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise ConfigurationError(f"queues: {briefly(name)}: the name of a queue, as steps say it")
    return name


def _limits(name: str, given: Any) -> Limits:
    if isinstance(given, Limits):
        return given
    known = {"concurrency", "rate"}
    if not isinstance(given, Mapping) or not given or set(given) - known:
        raise ConfigurationError(
            f"queues[{name!r}]={briefly(given)}: a dict with {' and '.join(sorted(known))}, or one of them"
        )
    try:
        return Limits(**given)
    except InvalidInput as problem:
        raise ConfigurationError(f"queues[{name!r}]: {problem}") from problem


def declare(connection: psycopg.Connection[Any], given: Declared | None) -> None:
    """Write what settings say, where that is not there already. What an operator changed stays as it is.

    Args:
        connection: where; in autocommit, or with a transaction.
        given: the setting; None: leave everything as it is. What was declared before and is not in it goes.
    """
    if given is None:
        return
    run(connection, query(PACKAGE, "queue_declare"), {
        "names": [name for name, _ in given],
        "concurrencies": [limits.concurrency for _, limits in given],
        "rates": [limits.count for _, limits in given],
        "periods": [limits.period for _, limits in given],
        "declared": [_json(limits) for _, limits in given],
    })  # fmt: skip


def _json(limits: Limits) -> str:
    stored = {"concurrency": limits.concurrency, "count": limits.count, "period": limits.period}
    return msgspec.json.encode(stored).decode()


def limit(connection: psycopg.Connection[Any], name: str, limits: Limits, *, actor: str, reason: str = "") -> None:
    """Change the limits of a queue for everybody, until `reset`. What is at work goes on.

    Args:
        connection: autocommit.
        name: of the queue.
        limits: what holds from now on; without any the queue has none, whatever code declares.
        actor: who says so.
        reason: why.
    """
    run(connection, query(PACKAGE, "queue_limit"), {
        "name": name, "concurrency": limits.concurrency, "rate": limits.count, "period": limits.period,
        "actor": actor, "reason": reason,
    })  # fmt: skip


def reset(connection: psycopg.Connection[Any], name: str) -> bool:
    """Let what code declares hold again; returns whether an operator had changed anything."""
    found = run(connection, query(PACKAGE, "queue_reset"), {"name": name}).fetchone()
    return bool(found and found[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    """A queue with limits, as it stands."""

    name: str
    concurrency: int | None
    rate: int | None  # steps in a period
    period: float | None  # seconds
    at_work: int  # steps that are begun
    published: int  # that have a place, and nobody has begun them
    lately: int  # begun in the last period
    declared: bool  # code says something about it
    actor: str  # the operator whose change holds; empty: what code says holds
    reason: str
    at: datetime  # since when

    @property
    def words(self) -> str:
        """The rate as it is written."""
        if self.rate is None or self.period is None:
            return ""
        for unit in ("d", "h", "m"):
            if self.period == SECONDS[unit]:
                return f"{self.rate}/{unit}"
        return f"{self.rate}/{'' if self.period == 1 else f'{self.period:g}'}s"


def queues(connection: psycopg.Connection[Any], *, now: datetime | None = None) -> list[Queue]:
    """The queues with limits, by name."""
    with psycopg.Cursor(connection, row_factory=class_row(Queue)) as cursor:
        return cursor.execute(query(PACKAGE, "queue_list"), {"now": now}).fetchall()
