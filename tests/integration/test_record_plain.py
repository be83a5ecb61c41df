"""Plain decisions are recorded by a statement of their own, which writes what the other one would."""

from __future__ import annotations

import json
import re

import psycopg
import pytest
from django.db import connection, transaction

from sagas import Saga, external_step
from sagas_outbox.queries import query
from tests.support.workers import begin_due, one_worker, run_batch

BEGUN = re.compile(r"first_begun_at\W+[\d.]+")  # when an attempt began


class Quiet(Saga[int], name="test.quiet", version=1):
    """Three steps that succeed."""

    @external_step(compensate=None)
    def first(self) -> int:
        return self.input

    @external_step(compensate=None, queue="left")
    def second(self) -> None: ...

    @external_step(pivot=True, queue="left")
    def third(self) -> None: ...


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that recorded something."""
    names: list[str] = []

    def noting(package: str, name: str) -> str:
        if name.startswith("record"):
            names.append(name)
        return query(package, name)

    monkeypatch.setattr("sagas.store.rows.query", noting)
    return names


def found(key: str) -> str:
    """What the database holds of one saga, without what differs from one saga to the next: ids and times."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            select to_jsonb(s) - array['id', 'key', 'input_hash', 'created_at', 'updated_at', 'finished_at'],
                s.finished_at is null,
                array(select to_jsonb(l) - array['saga_id', 'at'] from sagas_log l
                    where l.saga_id = s.id and l.seq > 0 order by l.seq),
                array(select to_jsonb(o) - array['id', 'saga_id', 'holder', 'first_begun_at', 'due_at']
                        || jsonb_build_object('holder', left(o.holder, 7), 'begun', o.first_begun_at is null)
                    from sagas_outbox o where o.saga_id = s.id)
            from sagas_saga s where s.key = %s""",
            [key],
        )
        return BEGUN.sub("", json.dumps(cursor.fetchone(), sort_keys=True, default=str))


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.usefixtures("shop", "quiet")
def test_both_statements_write_the_same(goes_on: bool, used: list[str]) -> None:
    """Whatever a plain decision does, it leaves the rows that the statement for all decisions would leave."""
    with transaction.atomic():
        for key in ("plain", "full"):
            Quiet.start(7, key=key)
    for _ in range(4):
        with one_worker(goes_on=goes_on) as worker:
            begun = begin_due(worker)
            for tied in (False, True):
                chosen = [each for each in begun if (each.key == "full") is tied]
                for delivery in chosen:
                    assert not delivery.tied  # neither a parent nor a line
                    delivery.tied = tied
                run_batch(worker, chosen)
        assert found("plain") == found("full")
    assert Quiet.get(key="plain").status == "completed"
    assert sorted(used) == ["record"] * 3 + ["record_plain"] * 3


@pytest.mark.usefixtures("shop", "quiet")
def test_who_stands_in_a_line_is_recorded_in_full(used: list[str]) -> None:
    """The next in the line of an ordering key has to be told, so such a saga is never plain."""
    with transaction.atomic():
        Quiet.start(7, key="lined", ordering_key="a")
    with one_worker(goes_on=True) as worker:
        run_batch(worker, begin_due(worker))
    assert set(used) == {"record"}


@pytest.mark.usefixtures("shop", "quiet")
def test_a_request_that_waits_stops_plain_work_too(used: list[str]) -> None:
    """A worker that records a plain step does not go on with the next one past a cancel."""
    with transaction.atomic():
        run = Quiet.start(7, key="cancelled")
    with one_worker(goes_on=True) as worker:
        begun = begin_due(worker)
        with transaction.atomic():
            Quiet.cancel(key="cancelled", reason="no longer wanted")
        run_batch(worker, begun)
    assert used == ["record_plain"]
    with psycopg.connect(**connection.get_connection_params()) as raw:
        assert raw.execute("select seq, status from sagas_saga where id = %s", [run.id]).fetchone() == (1, "running")
