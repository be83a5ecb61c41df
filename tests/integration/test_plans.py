"""The statements that run all the time look rows up by index, in front of a few thousand due rows and of very many."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import psycopg
import pytest
from django.db import transaction

from sagas import Saga, external_step
from sagas.worker import Worker
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Room
from tests.benchmarks.filling import fill_due

HOT = {"-- Lock due": "claim", "-- Begin": "begin", "-- Record": "record"}  # by how their SQL begins
BIG = re.compile(r"Seq Scan on (sagas_(?:outbox|saga|log))\b")


class Plain(Saga[int], name="test.plans", version=1):
    """Three steps that do nothing."""

    @external_step(compensate=None)
    def first(self) -> None: ...

    @external_step(compensate=None)
    def second(self) -> None: ...

    @external_step(pivot=True)
    def third(self) -> None: ...


class Seen:
    """What was executed of the hot statements: the last of each, with its parameters."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.last: dict[str, tuple[type[psycopg.Cursor[Any]], str, Any]] = {}
        execute = psycopg.Cursor.execute

        def noting(cursor: psycopg.Cursor[Any], query: Any, *arguments: Any, **options: Any) -> Any:
            for start, name in HOT.items():
                if str(query).startswith(start):
                    self.last[name] = (type(cursor), query, arguments[0])
            return execute(cursor, query, *arguments, **options)

        monkeypatch.setattr(psycopg.Cursor, "execute", noting)


def plans(connection: psycopg.Connection[Any], seen: Seen) -> dict[str, str]:
    """How the server would execute each of them now."""
    found: dict[str, str] = {}
    for name, (cursor, query, parameters) in list(seen.last.items()):
        body = query[re.search(r"^(with|select|insert|update)\b", query, re.MULTILINE).start() :]  # type: ignore[union-attr]
        lines = cursor(connection).execute(f"explain {body}", parameters).fetchall()  # type: ignore[arg-type]
        found[name] = "\n".join(line for (line,) in lines)
    return found


@pytest.mark.parametrize("due", [3_000, pytest.param(1_000_000, marks=pytest.mark.full)])
@pytest.mark.usefixtures("shop", "quiet")
def test_hot_statements_use_their_indexes(due: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim, begin and record read no table whole, so what they cost does not grow with what waits."""
    with transaction.atomic():
        Plain.start(1, key="model")
    store = DjangoStore("default")
    worker = Worker(
        store, end_process=lambda reason: None, ends_overruns=False, goes_on=lambda *_: True, draining=lambda: False
    )
    with closing(store.connect()) as connection:
        fill_due(connection, name=Plain.saga_name, key="model", count=due)
        seen = Seen(monkeypatch)
        with connection.transaction():
            rows = claims.lock_due(connection, [Room("default", 100)], begun=True, now=None)
            begun = worker.begin(connection, [held for held, _ in rows], published=False)
        worker.run(worker.take_up(begun))
        found = plans(connection, seen)
    worker.stop()
    assert len(begun) == 100
    assert set(found) == set(HOT.values())
    whole = {name: BIG.findall(plan) for name, plan in found.items() if BIG.search(plan)}
    assert not whole, "\n\n".join(found[name] for name in whole)


@pytest.mark.usefixtures("shop", "quiet")
def test_a_statement_that_lost_its_index_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the index of claims, the plan of a claim says that the outbox is read whole: the test above can fail."""
    with transaction.atomic():
        Plain.start(1, key="model")
    store = DjangoStore("default")
    with closing(store.connect()) as connection:
        fill_due(connection, name=Plain.saga_name, key="model", count=3_000)
        seen = Seen(monkeypatch)
        with connection.transaction(force_rollback=True):
            claims.lock_due(connection, [Room("default", 100)], begun=True, now=None)
            assert not BIG.search(plans(connection, seen)["claim"])
            for (index,) in connection.execute(
                "select indexname from pg_indexes where tablename = 'sagas_outbox' and indexdef like '%(queue%'"
            ).fetchall():
                connection.execute(f"drop index {index}")
            assert BIG.search(plans(connection, seen)["claim"])
