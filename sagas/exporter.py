"""The metrics for Prometheus (extra `metrics`): a collector that asks Postgres when it is asked."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import psycopg

from sagas.errors import ConfigurationError
from sagas.measure import Sample, measure, never_counted, rows_of
from sagas.metric_list import METRICS, STARTED, Metric
from sagas.ports import Store
from sagas.registry import registry
from sagas.retention import NO_JIT
from sagas_outbox.link import Link

log = logging.getLogger("sagas.metrics")

SHARE: Final = 20  # a measurement is used again for so many times as long as it took
LONGEST: Final = 10.0  # seconds that one statement may take

try:
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
except ModuleNotFoundError as missing:
    raise ConfigurationError("metrics need prometheus-client: pip install 'outbox-sagas[metrics]'") from missing

FAMILIES: Final[dict[str, Any]] = {
    "counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily,
}  # fmt: skip


class Collector:
    """Measures one database whenever it is asked, though never for more than a small share of the time.

    Args:
        store: where.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._link = Link(store.connect)
        self._lock = threading.Lock()
        self._started: dict[tuple[str, ...], float] = {}  # the highest that each of these counters was
        self._counted = 0.0  # all others, added up
        self._samples: list[Sample] = []
        self._fresh_until = 0.0

    def describe(self) -> Iterable[Any]:
        """Nothing is measured to be registered."""
        return [_family(metric) for metric in METRICS]

    def collect(self) -> Iterator[Any]:
        """The metrics as they are.

        Raises:
            psycopg.Error: the database cannot be asked; the scrape fails, which is what Prometheus has `up` for.
        """
        with self._lock:
            samples = self._measured()
        families = {metric.name: _family(metric) for metric in METRICS}
        for sample in samples:
            family = families[sample.metric.name]
            if sample.metric.kind == "histogram":
                family.add_metric(sample.labels, sample.buckets, sample.value)
            else:
                family.add_metric(sample.labels, sample.value)
        yield from families.values()

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _measured(self) -> list[Sample]:
        if time.monotonic() < self._fresh_until:
            return self._samples
        began = time.monotonic()
        with self._link.use() as connection, connection.transaction():
            connection.execute("set transaction isolation level repeatable read, read only")  # one moment for all
            connection.execute(NO_JIT)
            connection.execute(f"set local statement_timeout = '{int(LONGEST * 1000)}ms'")
            found = {each[:2]: each for each in self._grown(measure(rows_of(connection), self._store.settings))}
        unseen = {each[:2]: each for each in never_counted(registry.definitions())}
        self._samples = list((unseen | found).values())
        self._fresh_until = time.monotonic() + SHARE * (time.monotonic() - began)
        return self._samples

    def _grown(self, measured: Iterable[Sample]) -> Iterator[Sample]:
        """Starts never go down, though what a worker has counted is written a moment after it happened. The other
        counters do not by themselves; if they have, the database has gone back in time, and starts go with it."""
        samples = list(measured)
        counted = sum(each.value for each in samples if each.metric.kind == "counter" and each.metric is not STARTED)
        if counted < self._counted:
            self._started.clear()
        self._counted = counted
        for each in samples:
            if each.metric is not STARTED:
                yield each
                continue
            highest = self._started[each.labels] = max(each.value, self._started.get(each.labels, 0.0))
            yield each._replace(value=highest)


def _family(metric: Metric) -> Any:
    return FAMILIES[metric.kind](metric.name, f"{metric.help}.", labels=metric.labels)


def text(collector: Collector) -> bytes:
    """The metrics in Prometheus' text format."""
    collectors = CollectorRegistry(auto_describe=False)
    collectors.register(collector)
    return generate_latest(collectors)


def serve(store: Store, *, port: int, address: str = "0.0.0.0") -> tuple[int, Any]:
    """Answer scrapes in a thread of their own; returns the port, and what stops it when called.

    Args:
        store: what is measured.
        port: 0: a free one.
        address: where to listen.

    Raises:
        ConfigurationError: the port cannot be had.
    """
    collectors, collector = CollectorRegistry(auto_describe=False), Collector(store)
    collectors.register(collector)
    try:
        server, thread = start_http_server(port, addr=address, registry=collectors)
    except OSError as problem:
        raise ConfigurationError(f"metrics: port {port} of {address} cannot be had: {problem}") from problem

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
        try:
            collector.close()
        except psycopg.Error:
            log.info("the connection of the metrics was closed already")

    return server.server_port, stop
