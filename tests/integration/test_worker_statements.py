"""Batches: how many statements the server executes for one message, counted in the server's own log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connections

from sagas.testing.servers import NotOurServer, Postgres
from sagas_django.models import SagaRow
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Room
from tests.shop.sagas import Externals
from tests.support.stories import begin_many
from tests.support.workers import one_worker, run_batch

EXECUTED = re.compile(r"LOG:  (?:execute [^:]*|statement): (?:--[^\n]*\n\s*)*([^\n]+)")
Count = Callable[[str, int], Counter[str]]


@pytest.fixture
def count(other_database: str, postgres_server: Postgres, settings: Any) -> Count:
    """Runs one message of so many sagas of three external steps, and counts what the server executed for it."""
    settings.SAGAS = settings.SAGAS | {"FLUSH": 60.0}  # on a busy machine as well
    try:
        postgres_server.log()
    except NotOurServer:
        pytest.skip("the log of somebody else's server cannot be read")
    name = connections["other"].settings_dict["NAME"]
    url = postgres_server.url(name)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"alter database \"{name}\" set log_statement = 'all'")

    def run(name: str, many: int) -> Counter[str]:
        begin_many(Externals, [f"{name}-{number}" for number in range(many)], using="other")
        with DjangoStore("other").connect() as relay:
            rows = claims.claim(relay, [Room("default", many)], holder="relay:1", window=30, begun=True, now=None)
        assert len(rows) == many
        with one_worker("other", goes_on=True) as worker, DjangoStore("other").connect() as link:
            link.execute(f"select 'message {name} arrives'")
            run_batch(worker, worker.begin(link, [(row.id, row.token) for row in rows], published=True))
            link.execute(f"select 'message {name} is done'")
        assert set(SagaRow.objects.using("other").values_list("status", flat=True)) == {"completed"}
        log = postgres_server.log()
        log = log[log.index(f"'message {name} arrives'") : log.index(f"'message {name} is done'")]
        found = EXECUTED.findall(log)[:-1]  # without the mark itself
        return Counter(" ".join(text.split()[:3]) for text in found)

    return run


@pytest.mark.usefixtures("world")
def test_a_hundred_rows_take_no_more_statements_than_one_plus_two(count: Count) -> None:
    """One message of a hundred rows and three steps: one begin, three records, whatever their number."""
    one, hundred = count("one", 1), count("hundred", 100)
    assert sum(hundred.values()) <= sum(one.values()) + 2, (one, hundred)
    assert sum(one.values()) == 4, one
    assert hundred["with wanted as"] == 1
    assert hundred["with given as"] == 3
