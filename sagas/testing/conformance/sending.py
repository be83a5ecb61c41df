"""Signals are rows of the sender's transaction: sent once, early or late, or not at all."""

from __future__ import annotations

import pytest

from sagas.context import Missing
from sagas.errors import InvalidInput, SagaNotFound
from sagas.testing.conformance import outside
from sagas.testing.conformance.adapter import Integration
from sagas.testing.conformance.base import Suite
from sagas.testing.conformance.sagas import Answer, Asking, Told

SIGNALS = "select payload->'value'->>'text' from sagas_outbox where kind = 'signal' order by id"
YES, NO = Answer("yes"), Answer("no")


class SendSuite(Suite):
    """`wait.send()`."""

    def test_it_goes_with_the_transaction(self, integration: Integration) -> None:
        """Committed with the sender's own row, gone with it when that is rolled back."""
        self.begin(integration, Asking, "a")
        with integration.transaction() as unit:
            assert unit.send(Asking.answer, NO, key="a")
            unit.rollback()
        assert outside.rows(integration.url, SIGNALS) == []
        with integration.transaction() as unit:
            assert unit.send(Asking.answer, YES, key="a", actor="ann", reason="a test")
            assert outside.rows(integration.url, SIGNALS) == []
            unit.commit()
        assert outside.rows(integration.url, SIGNALS) == ["yes"]

    def test_a_dedupe_id(self, integration: Integration) -> None:
        """The same one is taken once, in one transaction or in several; rolled back, it may come again."""
        self.begin(integration, Asking, "a")
        with integration.transaction() as unit:
            assert unit.send(Asking.answer, YES, key="a", dedupe_id="hook-1")
            unit.rollback()
        with integration.transaction() as unit:
            assert unit.send(Asking.answer, YES, key="a", dedupe_id="hook-1")
            assert not unit.send(Asking.answer, YES, key="a", dedupe_id="hook-1")
            unit.commit()
        with integration.transaction() as unit:
            assert not unit.send(Asking.answer, NO, key="a", dedupe_id="hook-1")
            assert unit.send(Asking.answer, NO, key="a", dedupe_id="hook-2")
            unit.commit()
        assert outside.rows(integration.url, SIGNALS) == ["yes", "no"]

    def test_a_duplicate_at_the_same_time(self, integration: Integration) -> None:
        """A webhook that is posted twice at once is taken once."""
        self.begin(integration, Asking, "a")

        def post() -> bool:
            with integration.transaction() as other:
                taken = other.send(Asking.answer, YES, key="a", dedupe_id="hook-1")
                other.commit()
                return taken

        with integration.transaction() as unit:
            assert unit.send(Asking.answer, YES, key="a", dedupe_id="hook-1")
            second = outside.Aside(post)
            outside.until_blocked(integration.url)
            unit.commit()
        assert not second.join()
        assert outside.rows(integration.url, SIGNALS) == ["yes"]

    def test_before_its_saga(self, integration: Integration) -> None:
        """RAISE is an error, IGNORE drops it, KEEP keeps it until there is a saga of this key."""
        with integration.transaction() as unit:
            with pytest.raises(SagaNotFound, match="missing=KEEP"):
                unit.send(Asking.answer, YES, key="a")
            assert not unit.send(Asking.answer, YES, key="a", missing=Missing.IGNORE)
            assert unit.send(Asking.answer, YES, key="a", missing=Missing.KEEP)
            unit.commit()
        assert outside.rows(integration.url, SIGNALS) == ["yes"]
        self.begin(integration, Asking, "a")
        assert outside.rows(integration.url, SIGNALS) == ["yes"]

    def test_a_value_of_another_type(self, integration: Integration) -> None:
        """It is refused before anything is sent, and the transaction stays usable."""
        self.begin(integration, Asking, "a")
        with integration.transaction() as unit:
            with pytest.raises(InvalidInput):
                unit.send(Asking.answer, Told("no answer"), key="a")
            assert unit.send(Asking.answer, YES, key="a")
            unit.commit()
        assert outside.rows(integration.url, SIGNALS) == ["yes"]

    def test_by_id(self, integration: Integration) -> None:
        """The saga's id is as good as its key."""
        with integration.transaction() as unit:
            run = unit.start(Asking, Told(), key="a")
            assert unit.send(Asking.answer, YES, id=run.id)
            unit.commit()
        assert outside.rows(integration.url, SIGNALS) == ["yes"]
