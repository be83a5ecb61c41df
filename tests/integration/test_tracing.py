"""One trace: from the request that calls `start()` through every step and compensation."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from sagas import Refused, tracing
from sagas.tracing_relay import PublishSpans
from sagas_celery.publisher import message
from sagas_celery.tasks import read_traces
from sagas_django.models import OutboxRow, SagaRow
from tests.shop.families import Purchase
from tests.shop.sagas import Externals, Trip
from tests.shop.world import World
from tests.support.stories import begin, drain

pytestmark = pytest.mark.usefixtures("shop")

PROVIDER = TracerProvider()
EXPORTER = InMemorySpanExporter()
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Spans that have ended, with a tracer provider as an application sets one up."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", PROVIDER)
    monkeypatch.setattr(tracing, "_look_at", 0.0)
    EXPORTER.clear()
    return EXPORTER


def named(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """Spans by name; the last of each."""
    return {each.name: each for each in spans.get_finished_spans()}


def test_one_trace_from_the_request_to_the_last_step(spans: InMemorySpanExporter, world: World) -> None:
    """Each attempt is a span of the request's trace, and a child of the span that called `start()`."""
    world.plan("book", OSError("once"))
    with trace.get_tracer("web").start_as_current_span("POST /orders") as request:
        saga = begin(Trip, "a")
    drain()
    ids = request.get_span_context()
    found = [each for each in spans.get_finished_spans() if each.name != "POST /orders"]
    assert [each.name for each in found] == ["test.trip book"] * 2 + ["test.trip charge", "test.trip confirm"]
    for each in found:
        assert each.context is not None and each.context.trace_id == ids.trace_id
        assert each.parent is not None and each.parent.span_id == ids.span_id and each.parent.is_remote
        assert each.attributes is not None and each.attributes["saga.id"] == str(saga.id)
    assert [each.status.status_code for each in found] == [StatusCode.ERROR, *[StatusCode.UNSET] * 3]
    assert found[0].attributes is not None and found[0].attributes["saga.outcome"] == "failed"


def test_compensations_are_in_the_same_trace(spans: InMemorySpanExporter, world: World) -> None:
    """What undoes a step is as much a part of it."""
    world.plan("charge", Refused("no"))
    with trace.get_tracer("web").start_as_current_span("request") as request:
        begin(Trip, "a")
    drain()
    undo = named(spans)["test.trip book (undo)"]
    assert undo.context is not None and undo.context.trace_id == request.get_span_context().trace_id
    refused = named(spans)["test.trip charge"]
    assert refused.status.status_code is StatusCode.ERROR


def test_what_a_step_does_is_in_it(spans: InMemorySpanExporter, world: World) -> None:
    """Spans of the step's own are children of its attempt; a saga that it starts goes on with the trace."""

    def body(run: object) -> str:
        with trace.get_tracer("bank").start_as_current_span("POST bank"):
            begin(Externals, "inner")
            return "paid"

    world.plan("charge", body)
    begin(Trip, "outer")
    drain()
    drain()
    found = named(spans)
    attempt, call, inner = found["test.trip charge"], found["POST bank"], found["test.externals one"]
    assert call.parent is not None and attempt.context is not None and inner.context is not None
    assert call.parent.span_id == attempt.context.span_id
    assert inner.context.trace_id == attempt.context.trace_id


def test_a_saga_outside_of_traces_has_its_own(spans: InMemorySpanExporter, world: World) -> None:
    """Its trace id is the saga's id, so that one can be found by the other."""
    saga = begin(Externals, "a")
    drain()
    assert {each.context.trace_id for each in spans.get_finished_spans() if each.context} == {saga.id.int}
    assert SagaRow.objects.get(pk=saga.id).headers == {}


def test_no_payload_is_in_a_span(spans: InMemorySpanExporter, world: World) -> None:
    """Spans go to systems that many people can read."""
    world.plan("charge", "top-secret")
    begin(Trip, "a")
    drain()
    assert "top-secret" not in "".join(each.to_json() for each in spans.get_finished_spans())


def test_a_message_cannot_lead_a_saga_into_another_trace(spans: InMemorySpanExporter, world: World) -> None:
    """What a message says is a hint, and rows of two stores may have one number: only the saga's own trace counts."""
    with trace.get_tracer("web").start_as_current_span("request") as request:
        saga = begin(Externals, "a")
    row = OutboxRow.objects.get(saga_id=saga.id).pk
    tracing.carry({row: f"00-{1:032x}-{2:016x}-01"})
    drain()
    first = named(spans)["test.externals one"]
    assert first.context is not None and first.context.trace_id == request.get_span_context().trace_id
    assert first.parent is not None and first.parent.span_id == request.get_span_context().span_id
    tracing.carry(dict.fromkeys(range(20_000), "00"))
    assert len(tracing._carried) == tracing.MOST_CARRIED


def test_children_are_under_the_step_that_starts_them(spans: InMemorySpanExporter, world: World) -> None:
    """Also where their parent was started outside of any trace."""
    run = begin(Purchase)
    drain()
    found = named(spans)
    starts, hold = found["test.purchase payment"], found["test.payment hold"]
    assert starts.context is not None and hold.parent is not None and hold.context is not None
    assert hold.parent.span_id == starts.context.span_id and hold.context.trace_id == run.id.int


def test_a_relay_that_nobody_looks_at_asks_for_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """No statement is made, and messages are as they were."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(tracing, "_look_at", 0.0)
    spans = PublishSpans()
    spans.look(None, [])  # type: ignore[arg-type]
    with spans.sending("default", []) as traces:
        assert traces == {}
    assert message("default", [(1, 2)], traces) == {"v": 1, "store": "default", "rows": [[1, 2]]}
    assert read_traces({"1": "00-a", "2": 5, "3": "x"}, [(1, 1), (2, 1)]) == {1: "00-a"} and read_traces(7, []) == {}


def test_without_a_provider_nothing_is_done(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No span is made, and nothing is kept in the saga."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(tracing, "_look_at", 0.0)
    monkeypatch.setattr(tracing, "attempt", None)
    saga = begin(Externals, "a")
    drain()
    assert SagaRow.objects.get(pk=saga.id).headers == {}


def test_it_works_without_opentelemetry() -> None:
    """The package is an extra: where it is not installed, nothing of ours needs it."""
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import sagas.worker, sagas.engine; from sagas import tracing\n"
        "assert not tracing.INSTALLED and not tracing.enabled() and tracing.headers() == {}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
