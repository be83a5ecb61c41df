"""Spans of our processes, as lines of a file: what an application's exporter does over the network."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

VARIABLE = "RELAY_TRACES"  # the file; the environment of processes that are traced


class FileExporter(SpanExporter):
    """One span a line, in one write each, so that processes do not tear each other's lines.

    Args:
        file: where to.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        lines = "".join(f"{json.dumps(as_line(span))}\n" for span in spans)
        out = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(out, lines.encode())
        finally:
            os.close(out)
        return SpanExportResult.SUCCESS


def as_line(span: ReadableSpan) -> dict[str, Any]:
    """What a test looks at."""
    own = span.get_span_context()
    assert own is not None
    return {
        "name": span.name, "trace": own.trace_id, "id": own.span_id, "parent": span.parent and span.parent.span_id,
        "kind": span.kind.name, "error": not span.status.is_ok, "attributes": dict(span.attributes or {}),
        "pid": os.getpid(), "began": span.start_time, "ended": span.end_time,
    }  # fmt: skip


def provider(file: Path) -> TracerProvider:
    """A tracer provider that writes into a file."""
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(FileExporter(file)))
    return made


def install_from_environment() -> None:
    """Set up tracing if this process is to be traced."""
    if file := os.environ.get(VARIABLE):
        trace.set_tracer_provider(provider(Path(file)))
