"""Semantic locks: of a local step in its own transaction, of an external one beside it, free with the saga's end."""

from __future__ import annotations

from typing import Any

import pytest

from sagas.definition import Saga
from sagas.states import Status
from sagas.testing.conformance import outside
from sagas.testing.conformance.adapter import Integration
from sagas.testing.conformance.base import Suite
from sagas.testing.conformance.crashes import Breaking
from sagas.testing.conformance.sagas import Answer, Locks, LocksOutside, stage

HELD = "select s.key from sagas_lock l join sagas_saga s on s.id = l.saga_id where not l.waiting order by s.key"
AWAITED = "select s.key from sagas_lock l join sagas_saga s on s.id = l.saga_id where l.waiting order by s.key"
SAGAS = pytest.mark.parametrize("saga", [Locks, LocksOutside])


class LockSuite(Suite):
    """`lock=semantic_lock(...)`."""

    def test_with_the_writes_of_a_local_step(self, integration: Integration) -> None:
        """Nobody sees the lock before the note and the log entry are committed, and then with them."""
        stage.plays("looks", lambda run: outside.rows(integration.url, HELD))
        self.begin(integration, Locks, "a", what="looks")
        outside.drain(integration.store)
        said = "select data->>'result' from sagas_log where kind = 'step_done'"
        assert outside.rows(integration.url, said) == ["[]"]
        assert outside.rows(integration.url, HELD) == ["a"]

    def test_a_local_step_that_raises_holds_nothing(self, integration: Integration) -> None:
        """It did not happen; the attempt that does holds it."""
        stage.plays("once", lambda run: 1 / 0 if run.attempt == 1 else "fine")
        self.begin(integration, Locks, "a", what="once")
        outside.run_together(integration.store)
        assert outside.rows(integration.url, HELD) == []
        outside.drain(integration.store)
        assert outside.rows(integration.url, HELD) == ["a"]

    def test_a_commit_that_never_arrived_holds_nothing(self, integration: Integration) -> None:
        """Neither did the lock."""
        self.begin(integration, Locks, "a")
        outside.Aside(lambda: outside.run_together(Breaking(integration.store, arrived=False))).join()
        assert outside.rows(integration.url, HELD) == []
        outside.expire_leases(integration.store)
        outside.drain(integration.store)
        assert (outside.rows(integration.url, HELD), outside.notes(integration.url)) == (["a"], ["body a"])

    @SAGAS
    def test_another_waits_and_goes_on(self, integration: Integration, saga: type[Saga[Any]]) -> None:
        """Its body begins when the holder has ended, and no attempt was used meanwhile."""
        self.begin(integration, saga, "a")
        outside.drain(integration.store)
        self.begin(integration, saga, "b")
        outside.run_together(integration.store)
        assert outside.rows(integration.url, AWAITED) == ["b"]
        assert stage.calls["body", "b"] == 0
        with integration.transaction() as unit:
            unit.send(saga.__dict__["answer"], Answer("yes"), key="a")
            unit.commit()
        outside.drain(integration.store)
        self.ended(integration, Status.COMPLETED, "a")
        assert outside.rows(integration.url, HELD) == ["b"]
        assert stage.calls["body", "b"] == 1

    @SAGAS
    def test_one_of_several_at_once(self, integration: Integration, saga: type[Saga[Any]]) -> None:
        """In one batch, where local steps share a transaction: the others wait."""
        self.begin(integration, saga, *"abcd")
        outside.run_together(integration.store)
        assert len(outside.rows(integration.url, HELD)) == 1
        assert len(outside.rows(integration.url, AWAITED)) == 3
        assert sum(stage.calls.values()) == 1
