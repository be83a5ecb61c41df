"""The metrics as a view, for projects that let Prometheus scrape their web processes."""

from __future__ import annotations

from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.http import HttpRequest, HttpResponse

from sagas_django.store import DjangoStore

_collectors: dict[str, Any] = {}


def metrics_view(request: HttpRequest, database: str = DEFAULT_DB_ALIAS) -> HttpResponse:
    """Metrics in Prometheus' text format. It shows names of sagas and queues to whoever can reach it.

    Args:
        request: any.
        database: the alias that sagas are in.

    Raises:
        sagas.errors.ConfigurationError: prometheus-client is not installed.
    """
    from sagas import exporter

    if database not in _collectors:
        _collectors[database] = exporter.Collector(DjangoStore(database))
    return HttpResponse(exporter.text(_collectors[database]), content_type="text/plain; version=0.0.4; charset=utf-8")
