"""`start()` joins the transaction that the caller has: both are there, or neither is."""

from __future__ import annotations

import psycopg
import pytest

from sagas.errors import InvalidInput, NotInTransaction, SagaNotFound, StoreNotReady
from sagas.testing.conformance import outside
from sagas.testing.conformance.adapter import Integration
from sagas.testing.conformance.base import Suite
from sagas.testing.conformance.sagas import Local, Told

ODD = "a:b ::c %s %% %(x)s $1 \\ ' \" \U0001f600 ü\u2028\t;--"
XID = "select pg_current_xact_id()::text"
NOTE = "insert into conformance_note (text) values ('{}')"
TRANSACTIONS = "select count(distinct each) from (" + " union all ".join(
    f"select xmin::text from {table}" for table in ("sagas_saga", "sagas_log", "sagas_outbox", "conformance_note")
) + ") as rows (each)"  # fmt: skip
RENAMED = "alter function sagas_start_v1 rename to sagas_start_v1_hidden"
BACK = "alter function sagas_start_v1_hidden rename to sagas_start_v1"


class StartSuite(Suite):
    """Where a saga is started."""

    def test_both_are_committed(self, integration: Integration) -> None:
        """Saga, log entry, outbox row and business row are one transaction, that nobody else sees before."""
        with integration.transaction() as unit:
            unit.execute(NOTE.format("business"))
            run = unit.start(Local, Told(), key="a", headers={"trace": "1"})
            assert (run.created, run.key, run.run) == (True, "a", 1)
            assert unit.get(Local, key="a").id == unit.get(Local, id=run.id).id == run.id
            assert outside.keys(integration.url) == []
            unit.commit()
        assert (outside.keys(integration.url), outside.notes(integration.url)) == (["a"], ["business"])
        assert outside.rows(integration.url, TRANSACTIONS) == [1]

    def test_neither_is(self, integration: Integration) -> None:
        """A business transaction that is rolled back leaves no saga."""
        with integration.transaction() as unit:
            unit.execute(NOTE.format("business"))
            unit.start(Local, Told(), key="a")
            unit.rollback()
        assert (outside.keys(integration.url), outside.notes(integration.url)) == ([], [])
        with integration.transaction() as unit, pytest.raises(SagaNotFound, match="was its transaction committed"):
            unit.get(Local, key="a")

    def test_it_commits_nothing_itself(self, integration: Integration) -> None:
        """A transaction that nobody commits leaves nothing."""
        with integration.transaction() as unit:
            unit.start(Local, Told(), key="a")
        assert outside.keys(integration.url) == []
        assert outside.rows(integration.url, "select count(*) from sagas_outbox") == [0]

    def test_a_savepoint_that_is_rolled_back(self, integration: Integration) -> None:
        """It takes its saga along, and no other."""
        with integration.transaction() as unit:
            unit.start(Local, Told(), key="before")
            with pytest.raises(ZeroDivisionError), unit.savepoint():  # noqa: PT012 - the savepoint is the test
                unit.start(Local, Told(), key="gone")
                raise ZeroDivisionError
            unit.start(Local, Told(), key="gone again")
            unit.commit()
        assert outside.keys(integration.url) == ["before", "gone again"]
        assert outside.rows(integration.url, "select count(*) from sagas_outbox") == [2]

    def test_the_outer_transaction_decides(self, integration: Integration) -> None:
        """A saga that was started in a savepoint that was released goes with the transaction."""
        with integration.transaction() as unit:
            with unit.savepoint(), unit.savepoint():
                unit.start(Local, Told(), key="a")
            unit.rollback()
        assert outside.keys(integration.url) == []

    def test_it_leaves_the_transaction_as_it_is(self, integration: Integration) -> None:
        """The same transaction before and after every call, and it goes on."""
        with integration.transaction() as unit:
            unit.execute(NOTE.format("before"))
            unit.execute(f"create temporary table seen on commit drop as {XID}")
            unit.start(Local, Told(), key="a")
            unit.get(Local, key="a")
            unit.cancel(Local, key="a", reason="a test")
            unit.execute(f"insert into seen {XID}")
            unit.execute(
                "insert into conformance_note (text) select count(distinct pg_current_xact_id)::text from seen"
            )
            unit.commit()
        assert outside.notes(integration.url) == ["1", "before"]

    def test_it_sends_nothing_that_the_session_keeps_back(self, integration: Integration) -> None:
        """`start`, `get` and `cancel` do not flush."""
        with integration.transaction() as unit:
            if not unit.keep_back("kept back"):
                pytest.skip("there is no session that keeps anything back")
            unit.start(Local, Told(), key="a")
            unit.get(Local, key="a")
            unit.cancel(Local, key="a", reason="a test")
            assert unit.kept_back()
            unit.commit()
        assert (outside.keys(integration.url), outside.notes(integration.url)) == (["a"], ["kept back"])

    def test_a_subject(self, integration: Integration) -> None:
        """Type and id of the business object are kept with the saga."""
        with integration.transaction() as unit:
            given = unit.subject()
            if given is None:
                pytest.skip("there are no business objects")
            unit.start(Local, Told(), key="a", subject=given[0])
            unit.commit()
        found = outside.rows(integration.url, "select subject_type, subject_id from sagas_saga")
        assert found == [given[1]]

    def test_outside_a_transaction(self, integration: Integration) -> None:
        """It refuses, unless that is what the caller wants; then it is committed at once."""
        with integration.autocommit() as unit:
            with pytest.raises(NotInTransaction, match=r"no transaction is open on .*own_transaction=True"):
                unit.start(Local, Told(), key="a")
            assert outside.keys(integration.url) == []
            assert unit.start(Local, Told(), key="b", own_transaction=True).created
            assert outside.keys(integration.url) == ["b"]

    def test_a_failed_transaction(self, integration: Integration) -> None:
        """After a failed statement nothing is started, and nothing is pretended."""
        with integration.transaction() as unit:
            with pytest.raises(Exception, match="division by zero"):
                unit.execute("select 1 / 0")
            with pytest.raises(Exception, match=r"(?i)transaction"):
                unit.start(Local, Told(), key="a")
            unit.rollback()
        assert outside.keys(integration.url) == []

    def test_any_text_goes_through_the_driver(self, integration: Integration) -> None:
        """Colons, percent signs and quotes are data."""
        with integration.transaction() as unit:
            unit.start(Local, Told(text=ODD), key=ODD, headers={ODD: ODD})
            assert unit.get(Local, key=ODD).key == ODD
            unit.cancel(Local, key=ODD, reason=ODD)
            unit.commit()
        assert outside.keys(integration.url) == [ODD]
        stored = "select data->'saga'->'input'->>'text' from sagas_log"
        assert outside.rows(integration.url, stored) == [ODD]

    def test_a_bad_input_costs_nothing(self, integration: Integration) -> None:
        """It is refused before anything is sent, and the transaction stays usable."""
        with integration.transaction() as unit:
            with pytest.raises(InvalidInput, match="NUL"):
                unit.start(Local, Told(), key="a\x00")
            unit.start(Local, Told(), key="b")
            unit.commit()
        assert outside.keys(integration.url) == ["b"]

    def test_a_database_that_is_read_only(self, integration: Integration) -> None:
        """A replica, or a primary after a failover, is named as such."""
        with integration.transaction() as unit:
            unit.execute("set transaction read only")
            with pytest.raises(StoreNotReady, match=r"is read-only .*connect to the primary"):
                unit.start(Local, Told(), key="a")

    def test_a_database_that_was_not_migrated(self, integration: Integration) -> None:
        """The error says what is missing, and what to run."""
        with psycopg.connect(integration.url, autocommit=True) as connection:
            connection.execute(RENAMED)
        try:
            with integration.transaction() as unit, pytest.raises(StoreNotReady, match="lacks the tables of sagas"):
                unit.start(Local, Told(), key="a")
        finally:
            with psycopg.connect(integration.url, autocommit=True) as connection:
                connection.execute(BACK)
