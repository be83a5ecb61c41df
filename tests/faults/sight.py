"""Looking at one saga in one database, from outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

import psycopg

from sagas.verify import Finding, verify

TERMINAL = ("completed", "compensated", "cancelled", "aborted")
PATIENCE = 30.0  # seconds that any wait may take

T = TypeVar("T")


def wait_until(look: Callable[[], T], what: str, timeout: float = PATIENCE) -> T:
    """Look again and again until there is something to see, and return it.

    Raises:
        AssertionError: there was nothing within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.03)
    return seen


@dataclass(frozen=True, kw_only=True)
class Row:
    """An outbox row without its due time, which heartbeats move."""

    work: str  # such as charge:do
    holder: str  # "worker", "relay" or ""
    token: int
    deliveries: int
    publishes: int = 0


@dataclass(frozen=True, kw_only=True)
class Line:
    """A log line: what happened, to which step, at which attempt, and who said so."""

    kind: str
    step: str | None = None
    attempt: int = 0
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class View:
    """What one database holds at one moment."""

    status: str
    outbox: list[Row]
    log: list[Line]
    dedupe: dict[str, str]  # "charge:do" -> state
    movements: list[str]  # what local steps did
    reservations: int


@dataclass(kw_only=True)
class Sight:
    """The saga of an order, and whatever else there is in its database.

    Args:
        url: the database.
        order: its order.
    """

    url: str
    order: str = field(default_factory=lambda: f"order-{uuid4().hex[:12]}")
    _connection: psycopg.Connection[Any] | None = None

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """Our own connection, for looking."""
        if self._connection is None:
            self._connection = psycopg.connect(self.url, autocommit=True)
        return self._connection

    def disconnect(self) -> None:
        """Close our own connection; the next look opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def fetch(self, query: str, *parameters: object) -> list[Any]:
        """The rows of a query."""
        return self.connection.execute(query, parameters or None).fetchall()

    def status(self, order: str | None = None) -> str:
        """Where the saga of the order stands."""
        return str(self.fetch("select status from sagas_saga where key = %s", order or self.order)[0][0])

    def kinds(self, order: str | None = None) -> list[tuple[str, str | None]]:
        """Kind and step of each line of its log."""
        return [(kind, step) for _, kind, step, *_ in self.fetch(LOG, order or self.order)]

    def has_ended(self, order: str | None = None) -> bool:
        """Whether the saga of the order is over."""
        return self.status(order) in TERMINAL

    def view(self) -> View:
        """Everything in the database, of one moment."""
        with self.connection.transaction():
            self.connection.execute("set transaction isolation level repeatable read")
            return View(
                status=self.status(),
                outbox=[_row(*row) for row in self.fetch(OUTBOX)],
                log=[Line(kind=row[1], step=row[2], attempt=row[3], source=row[4]) for row in self._log()],
                dedupe={key.split(":", 1)[1].removesuffix(":0"): state for key, state in self.fetch(DEDUPE)},
                movements=[row[0] for row in self.fetch("select what from faults_movement order by id")],
                reservations=len(self.fetch("select 1 from faults_reservation")),
            )

    def _log(self) -> list[Any]:
        lines = self.fetch(LOG, self.order)
        assert [line[0] for line in lines] == list(range(len(lines))), f"each seq once, without gaps: {lines}"
        return lines

    def findings(self) -> list[str]:
        """What `sagas verify` finds wrong."""
        return [str(each) for each in verify(self.connection) if isinstance(each, Finding)]


OUTBOX = "select step, direction, kind, holder, token, deliveries, publishes from sagas_outbox order by id"
LOG = (
    "select l.seq, l.kind, l.step, l.attempt, coalesce(l.data->>'source', '')"
    " from sagas_log l join sagas_saga s on s.id = l.saga_id where s.key = %s order by l.seq"
)
DEDUPE = "select key, state from sagas_dedupe"


def _row(
    step: str | None, direction: str, kind: str, holder: str | None, token: int, deliveries: int, publishes: int
) -> Row:
    return Row(
        work=f"{step}:{direction}" if step else kind,
        holder=(holder or "").partition(":")[0],
        token=token,
        deliveries=deliveries,
        publishes=publishes,
    )
