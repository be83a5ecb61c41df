"""OpenTelemetry (extra `tracing`): one trace from the request that started a saga through all its steps.

`start()` keeps the trace context in the saga's headers, as W3C `traceparent`. Each attempt of a step or compensation
is a span in that trace, with the span that called `start()` as its parent. A saga that was started outside of any trace
has one of its own, whose id is the saga's. Without OpenTelemetry, or with no tracer provider set up, nothing happens.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

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
BAD: Final = (Failed, Refused, Undecided, Unstorable)


_enabled, _look_at = False, 0.0


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


@contextmanager
def attempt(delivery: Delivery) -> Iterator[Outcome]:
    """A span around one attempt; gives what to tell its outcome to."""
    assert delivery.attempt is not None
    tracer, outcome = trace.get_tracer(TRACER), Outcome()
    given = delivery.attempt
    suffix = "" if given.direction is Direction.DO else f" ({given.direction})"
    attributes: dict[str, str | int] = {
        "saga.id": str(delivery.saga_id), "saga.name": delivery.name, "saga.version": delivery.version,
        "saga.key": delivery.key, "saga.step": given.step, "saga.direction": given.direction.value,
        "saga.deliveries": given.deliveries, "messaging.destination.name": delivery.queue,
    }  # fmt: skip
    with tracer.start_as_current_span(
        f"{delivery.name} {given.step}{suffix}",
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
    """The context of the saga's trace."""
    found = TraceContextTextMapPropagator().extract(dict(_kept(delivery)))
    if trace.get_current_span(found).get_span_context().is_valid:
        return found
    own = trace.SpanContext(
        trace_id=delivery.saga_id.int, span_id=delivery.saga_id.int & (2**64 - 1) or 1, is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )  # fmt: skip
    return propagation.set_span_in_context(trace.NonRecordingSpan(own))


def _kept(delivery: Delivery) -> Mapping[str, str]:
    """The headers of a saga, from entry 0 of its log; none where that is too large to have been loaded."""
    if delivery.history.get(0) is None:
        return {}
    return delivery.reader.head(delivery.history).headers
