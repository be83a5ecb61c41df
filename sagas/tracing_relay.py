"""The relay's part of a trace: each row that is published is a span of its saga's trace, under the request's span.

The message takes the context of these spans along, so that what a worker does with a row is under the span that sent
it. The table of sagas is asked for their traces once for each pass of the relay, and only where spans are looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sagas import tracing
from sagas.store.rows import Connection
from sagas_outbox.claims import Claimed
from sagas_outbox.queries import query, run

log = logging.getLogger("sagas.relay")

PACKAGE: Final = "sagas.store"
Traces = Mapping[int, str]  # W3C traceparent by row


class PublishSpans:
    """Makes the spans of one relay."""

    def __init__(self) -> None:
        self._sagas: Mapping[int, Any] = {}  # by row: its saga's id, name, key, traceparent and tracestate

    def look(self, connection: Connection, rows: Sequence[Claimed]) -> None:
        """Find out which traces the rows of a pass are in.

        Args:
            connection: of the relay.
            rows: what it has claimed.
        """
        self._sagas = {}
        if tracing.enabled():
            found = run(connection, query(PACKAGE, "traces"), {"ids": [row.id for row in rows]})
            self._sagas = {id: saga for id, *saga in found}

    @contextmanager
    def sending(self, queue: str, rows: Sequence[Claimed]) -> Iterator[Traces]:
        """Spans around the publishing of one message, for each of its rows; gives what the message is to take along.

        Args:
            queue: where it goes.
            rows: what it is about.
        """
        known = [row for row in rows if row.id in self._sagas]
        if not known:
            yield {}
            return
        spans: dict[int, Any] = {}
        traces: Traces = {}
        with _harmless():  # what looks at spans may fail; work is published all the same
            for row in known:
                spans[row.id] = self._span(queue, row, len(rows))
            traces = {id: tracing.traceparent(span) for id, span in spans.items()}
        try:
            yield traces
        except Exception as problem:
            for span in spans.values():
                with _harmless():
                    tracing.failed(span, type(problem).__name__)
            raise
        finally:
            for span in spans.values():
                with _harmless():
                    span.end()

    def _span(self, queue: str, row: Claimed, together: int) -> Any:
        saga_id, name, key, parent, state = self._sagas[row.id]
        headers = {"traceparent": parent or "", "tracestate": state or ""}
        attributes: dict[str, str | int] = {
            "saga.id": str(saga_id), "saga.name": name, "saga.key": key, "saga.step": row.step or "",
            "saga.direction": row.direction or "", "saga.work": row.kind, "saga.publishes": row.publishes,
            "messaging.destination.name": queue, "messaging.operation.type": "send",
            "messaging.batch.message_count": together,
        }  # fmt: skip
        what = tracing.work_name(row.step or row.kind, row.direction)
        return tracing.sent_span(f"{name} {what} publish", tracing.saga_context(saga_id, headers), attributes)


@contextmanager
def _harmless() -> Iterator[None]:
    try:
        yield
    except Exception as problem:
        log.warning("a span of the relay is lost, the work is not: %s: %s", type(problem).__name__, problem)
