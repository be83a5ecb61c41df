"""One trace over processes: from the request over the relay and Celery workers through every step and compensation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from sagas import tracing
from tests.relay.conftest import PlantMaker
from tests.relay.plant import Plant, wait_until
from tests.relay.sagas import OTHER_QUEUE, Traced
from tests.relay.spans import VARIABLE, provider

ENDED = "select status from sagas_saga where key = %s"


@pytest.fixture
def plant(new_plant: PlantMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plant]:
    """A relay, a worker of two processes, and this process as the web: all write their spans to one file."""
    file = tmp_path / "spans.jsonl"
    monkeypatch.setenv(VARIABLE, str(file))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider(file))
    monkeypatch.setattr(tracing, "_look_at", 0.0)
    with new_plant({"POLL": 0.2}) as plant:
        plant.worker(f"quick,{OTHER_QUEUE}")
        plant.relay()
        yield plant
    tracing._look_at = 0.0


def read(file: Path) -> list[dict[str, Any]]:
    """The spans that have ended."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def request_pid(found: list[dict[str, Any]]) -> int:
    """The process that the request came to."""
    return next(int(each["pid"]) for each in found if each["name"] == "POST /orders")


class Spans:
    """The spans of one trace.

    Args:
        found: all of them.
    """

    def __init__(self, found: list[dict[str, Any]]) -> None:
        self.found, self.by_id = found, {each["id"]: each for each in found}

    def named(self, name: str) -> list[dict[str, Any]]:
        """Those of a name, in the order in which they began."""
        return sorted((each for each in self.found if each["name"] == name), key=lambda each: each["began"])

    def chain(self, name: str, nth: int = 0) -> list[str]:
        """The name of a span and of all that it is under, up to the request."""
        names, span = [], self.named(name)[nth]
        while span is not None:
            names.append(span["name"])
            assert (span["parent"] is None) == (span["name"] == "POST /orders"), span
            span = None if span["parent"] is None else self.by_id[span["parent"]]
        return names


def test_one_trace_from_the_request_to_the_last_compensation(plant: Plant, tmp_path: Path) -> None:
    """All processes write spans of one trace; each attempt is under the span of the relay that published its row, which
    is under the request, also when a step is tried again, is undone, or belongs to a child saga."""
    with trace.get_tracer("web").start_as_current_span("POST /orders") as request:
        plant.start("a", saga=Traced)
    wait_until(lambda: plant.fetch(ENDED, "a") == [("compensated",)], "the saga has turned back")
    file = tmp_path / "spans.jsonl"
    wait_until(lambda: 'relay.traced charge (undo)"' in file.read_text(), "the last span has been written")

    found = read(file)
    assert {each["trace"] for each in found} == {request.get_span_context().trace_id}
    spans = Spans(found)
    ours, sent = ["POST /orders"], "publish"
    first = ["relay.traced charge", f"relay.traced charge {sent}", *ours]
    assert spans.chain("relay.traced charge") == first and spans.chain("relay.traced charge", 1) == first
    assert spans.chain("POST /charges", 1) == ["POST /charges", *first]
    for work in ("reserve", "ship", "charge (undo)", "reserve (undo)"):
        name = f"relay.traced {work}"
        assert spans.chain(name)[0] == name and spans.chain(name)[2:] == ours
        assert spans.chain(name)[1].endswith(sent)
    child = ["relay.packing pack", f"relay.packing pack {sent}", "relay.traced packing"]
    assert spans.chain("relay.packing pack")[:3] == child
    assert spans.chain("relay.packing pack (undo)")[2] == "relay.traced packing"

    attempts = spans.named("relay.traced charge")
    assert [each["error"] for each in attempts] == [True, False]
    assert spans.named("relay.traced ship")[0]["attributes"]["saga.outcome"] == "refused"
    published, begun = spans.by_id[attempts[1]["parent"]], attempts[1]
    assert published["id"] != attempts[0]["parent"] and published["kind"] == "PRODUCER"
    assert published["attributes"]["messaging.destination.name"] == "quick" and published["began"] <= begun["began"]
    web, relays = request_pid(found), {each["pid"] for each in found if each["kind"] == "PRODUCER"}
    workers = {each["pid"] for each in found if each["kind"] == "CONSUMER"}
    assert len(relays) == 1 and workers and web not in workers | relays and not workers & relays
