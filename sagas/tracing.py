"""OpenTelemetry (extra `tracing`): one trace from the request that started a saga through all its steps.

`start()` keeps the trace context in the saga's headers, as W3C `traceparent`. Each attempt of a step or compensation
is a span in that trace. Its parent is the span of the relay that published its row (`sagas.tracing_relay`), whose own
parent is the span that called `start()`; without a relay that is its parent itself. A saga that was started outside of
any trace has one of its own, whose id is the saga's. Without OpenTelemetry, or with no tracer provider set up, nothing
happens.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sagas.events import Direction, Failed, Refused, Undecided, Unstorable

if TYPE_CHECKING:
    from sagas.store.rows import Delivery

try:
    from opentelemetry import trace
    from opentelemetry.trace import propagation
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    INSTALLED = True
except ModuleNotFoundError:
    INSTALLED = False

TRACER: Final = "outbox-sagas"
LOOK_EVERY: Final = 1.0  # seconds
MOST_CARRIED: Final = 10_000  # rows of messages whose traces are remembered
BAD: Final = (Failed, Refused, Undecided, Unstorable)


_enabled, _look_at = False, 0.0
_carried: OrderedDict[int, str] = OrderedDict()  # traceparent of the span that published a row; the oldest goes first
_carrying = threading.Lock()


class Outcome:
    """What came of an attempt, told to its span."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        self.event: object = None


def headers() -> dict[str, str]:
    """What is kept of the trace that the caller is in; nothing where it is in none."""
    if not INSTALLED or not trace.get_current_span().get_span_context().is_valid:
        return {}
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


def enabled() -> bool:
    """Whether anybody looks at spans. Asked for every body, so it is found out once a second."""
    global _enabled, _look_at
    if INSTALLED and (now := time.monotonic()) >= _look_at:
        _enabled, _look_at = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider), now + LOOK_EVERY
    return _enabled


def carry(traces: Mapping[int, str]) -> None:
    """Remember which spans have published some rows, for the attempts at them.

    Args:
        traces: what a message took along: W3C traceparent by row.
    """
    if not traces or not enabled():
        return
    with _carrying:
        for row, traceparent in traces.items():
            _carried[row] = traceparent
            _carried.move_to_end(row)
        while len(_carried) > MOST_CARRIED:
            _carried.popitem(last=False)


def saga_context(saga_id: UUID, headers: Mapping[str, str]) -> Any:
    """The context of a saga's trace.

    Args:
        saga_id: the saga.
        headers: what it keeps of the trace that it was started in.
    """
    found = TraceContextTextMapPropagator().extract(dict(headers))
    if trace.get_current_span(found).get_span_context().is_valid:
        return found
    own = trace.SpanContext(
        trace_id=saga_id.int, span_id=saga_id.int & (2**64 - 1) or 1, is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )  # fmt: skip
    return propagation.set_span_in_context(trace.NonRecordingSpan(own))


def sent_span(name: str, context: Any, attributes: Mapping[str, str | int]) -> Any:
    """A span that has begun, about something that is handed to a broker; whoever asks for it ends it."""
    return trace.get_tracer(TRACER).start_span(
        name, context=context, kind=trace.SpanKind.PRODUCER, attributes=attributes
    )  # fmt: skip


def traceparent(span: Any) -> str:
    """The context of a span, as a message takes it along."""
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, propagation.set_span_in_context(span))
    return carrier["traceparent"]


def failed(span: Any, what: str) -> None:
    """Mark a span as one that ended badly."""
    span.set_status(trace.Status(trace.StatusCode.ERROR, what))


def work_name(step: str, direction: str | None) -> str:
    """How spans name the work at a step."""
    return step if direction in (None, "", Direction.DO) else f"{step} ({direction})"


@contextmanager
def attempt(delivery: Delivery) -> Iterator[Outcome]:
    """A span around one attempt; gives what to tell its outcome to."""
    assert delivery.attempt is not None
    tracer, outcome = trace.get_tracer(TRACER), Outcome()
    given = delivery.attempt
    attributes: dict[str, str | int] = {
        "saga.id": str(delivery.saga_id), "saga.name": delivery.name, "saga.version": delivery.version,
        "saga.key": delivery.key, "saga.step": given.step, "saga.direction": given.direction.value,
        "saga.deliveries": given.deliveries, "messaging.destination.name": delivery.queue,
    }  # fmt: skip
    with tracer.start_as_current_span(
        f"{delivery.name} {work_name(given.step, given.direction)}",
        context=_parent(delivery),
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
    ) as span:
        yield outcome
        if isinstance(outcome.event, BAD):
            error = getattr(outcome.event, "error", None)
            span.set_attribute("saga.outcome", type(outcome.event).__name__.lower())
            span.set_status(trace.Status(trace.StatusCode.ERROR, error.type if error else ""))
        elif outcome.event is not None:
            span.set_attribute("saga.outcome", type(outcome.event).__name__.lower())


def _parent(delivery: Delivery) -> Any:
    """The span that published the row, if it is known and of the saga's own trace; else the one that started the saga.
    A row of another store may have the same number, and a message may be forged."""
    found = saga_context(delivery.saga_id, _kept(delivery))
    sent = _carried.get(delivery.id)
    if sent is None:
        return found
    context = TraceContextTextMapPropagator().extract({"traceparent": sent}, found)
    return context if _trace_id(context) == _trace_id(found) else found


def _trace_id(context: Any) -> int:
    found: int = trace.get_current_span(context).get_span_context().trace_id
    return found


def _kept(delivery: Delivery) -> Mapping[str, str]:
    """The headers of a saga, from entry 0 of its log; none where that is too large to have been loaded."""
    if delivery.history.get(0) is None:
        return {}
    return delivery.reader.head(delivery.history).headers
