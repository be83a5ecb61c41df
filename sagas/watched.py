"""Around each attempt: its log lines know their saga, it is a span of the saga's trace, and its time is counted."""

from __future__ import annotations

import time
from contextlib import suppress
from contextvars import Token
from types import TracebackType

import psycopg

from sagas import hooks, tracing
from sagas.duty import Duty
from sagas.events import Answer
from sagas.logs import Labelled, about
from sagas.store.rows import Delivery
from sagas.takeover import Misplaced
from sagas.tally import Tally
from sagas_outbox.link import Link


def last_words(link: Link, tally: Tally) -> None:
    """When a worker ends: callbacks are told what they were to be told, and what was counted is written."""
    hooks.drain()
    with suppress(psycopg.Error), link.use() as connection:
        tally.save(connection)


class Watched:
    """One attempt that is watched. Not a generator: this is done for every body.

    Args:
        delivery: what is attempted.
        duty: the work that it is about.
        tally: counts it.
    """

    __slots__ = ("_began", "_delivery", "_duty", "_span", "_tally", "_token", "_told", "event", "took")

    def __init__(self, delivery: Delivery, duty: Duty, tally: Tally) -> None:
        self._delivery, self._duty, self._tally = delivery, duty, tally
        self.event: Answer | Misplaced | None = None  # what came of it
        self.took = 0.0  # seconds

    def __enter__(self) -> Watched:
        self._token: Token[Labelled | None] = about.set(self._delivery)
        self._span = tracing.attempt(self._delivery) if tracing.enabled() else None
        self._told = None if self._span is None else self._span.__enter__()
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:  # fmt: skip
        self.took = time.perf_counter() - self._began
        if self._told is not None:
            self._told.event = self.event
        try:
            if self._span is not None:
                self._span.__exit__(kind, problem, where)
        finally:
            about.reset(self._token)
        self._tally.body(self._duty.subject, self.took)
