"""Callers only insert rows: a request goes with its transaction, and waits for nobody's lock."""

from __future__ import annotations

import psycopg
import pytest

from sagas.errors import SagaNotFound
from sagas.testing.conformance import outside
from sagas.testing.conformance.adapter import Integration
from sagas.testing.conformance.base import Suite
from sagas.testing.conformance.sagas import Answer, Asking, Local, Told

REQUESTS = "select payload->>'reason' from sagas_outbox where kind = 'cancel'"
LOCKED = "select s.id from sagas_saga s join sagas_outbox o on o.saga_id = s.id for update"


class RequestSuite(Suite):
    """`cancel()`."""

    def test_it_goes_with_the_transaction(self, integration: Integration) -> None:
        """A request that is rolled back was never made."""
        self.begin(integration, Local, "a")
        with integration.transaction() as unit:
            unit.cancel(Local, key="a", reason="rolled back")
            unit.rollback()
        assert outside.rows(integration.url, REQUESTS) == []
        with integration.transaction() as unit:
            unit.cancel(Local, key="a", reason="committed")
            assert outside.rows(integration.url, REQUESTS) == []
            unit.commit()
        assert outside.rows(integration.url, REQUESTS) == ["committed"]

    def test_of_a_saga_that_is_not_there(self, integration: Integration) -> None:
        """It is an error that leaves the transaction usable."""
        with integration.transaction() as unit:
            with pytest.raises(SagaNotFound, match=r"no saga conformance\.local with key 'a'"):
                unit.cancel(Local, key="a", reason="a test")
            unit.start(Local, Told(), key="b")
            unit.commit()
        assert outside.keys(integration.url) == ["b"]

    def test_it_waits_for_no_worker(self, integration: Integration) -> None:
        """Saga and outbox row are locked by somebody: looking, sending and cancelling go through."""
        self.begin(integration, Asking, "a")
        with psycopg.connect(integration.url) as worker:
            assert worker.execute(LOCKED).fetchall()
            with integration.transaction() as unit:
                unit.execute("set local lock_timeout = '5s'")
                unit.get(Asking, key="a")
                assert unit.send(Asking.answer, Answer("yes"), key="a")
                unit.cancel(Asking, key="a", reason="a test")
                unit.commit()
        assert outside.rows(integration.url, REQUESTS) == ["a test"]

    def test_no_worker_waits_for_it(self, integration: Integration) -> None:
        """While the caller's transaction is open, a worker can lock and change what it asked for."""
        self.begin(integration, Asking, "a")
        with integration.transaction() as unit:
            unit.send(Asking.answer, Answer("yes"), key="a")
            unit.cancel(Asking, key="a", reason="a test")
            with psycopg.connect(integration.url) as worker:
                worker.execute("set local lock_timeout = '5s'")
                worker.execute("update sagas_saga set updated_at = updated_at")
                worker.execute("update sagas_outbox set due_at = due_at")
            unit.commit()
        assert outside.rows(integration.url, REQUESTS) == ["a test"]
