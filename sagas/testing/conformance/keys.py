"""One key, one saga: also when two transactions start it at the same time."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from sagas.context import OnExisting
from sagas.errors import KeyConflict
from sagas.testing.conformance import outside
from sagas.testing.conformance.adapter import Integration
from sagas.testing.conformance.base import Suite, sqlstate
from sagas.testing.conformance.sagas import Local, Told

LEVELS = ("read committed", "repeatable read", "serializable")
RETRYABLE = ("40001", "40P01")


class KeySuite(Suite):
    """Business keys."""

    def test_a_key_that_is_taken(self, integration: Integration) -> None:
        """The same input gives the same saga, another one a conflict, and the transaction stays usable."""
        with integration.transaction() as unit:
            first = unit.start(Local, Told("x"), key="a")
            unit.commit()
        with integration.transaction() as unit:
            again = unit.start(Local, Told("x"), key="a")
            assert (again.id, again.created) == (first.id, False)
            with pytest.raises(KeyConflict, match="another input"):
                unit.start(Local, Told("y"), key="a")
            with pytest.raises(KeyConflict, match="RAISE"):
                unit.start(Local, Told("x"), key="a", on_existing=OnExisting.RAISE)
            running = unit.start(Local, Told("x"), key="a", on_existing=OnExisting.NEW_IF_COMPENSATED)
            assert (running.id, running.created) == (first.id, False)
            unit.start(Local, Told("x"), key="b")
            unit.commit()
        assert outside.keys(integration.url) == ["a", "b"]

    def test_twice_in_one_transaction(self, integration: Integration) -> None:
        """The second call finds what the first one has written."""
        with integration.transaction() as unit:
            runs = [unit.start(Local, Told(), key="a") for _ in range(3)]
            unit.commit()
        assert len({run.id for run in runs}) == 1
        assert [run.created for run in runs] == [True, False, False]
        assert outside.rows(integration.url, "select count(*) from sagas_outbox") == [1]

    @pytest.mark.parametrize("level", LEVELS)
    def test_a_duplicate_of_one_that_commits(self, integration: Integration, level: str) -> None:
        """The second waits; then it is given the first one's saga, or told to try its transaction again."""
        with integration.transaction() as unit:
            first = unit.start(Local, Told(), key="a")
            second = outside.Aside(lambda: self._start(integration, level))
            outside.until_blocked(integration.url)
            unit.commit()
        if level == LEVELS[0]:
            assert second.join() == (str(first.id), False)
        else:
            with pytest.raises(Exception, match=r"(?i)serialize") as refused:
                second.join()
            assert sqlstate(refused.value) in RETRYABLE
            assert self._start(integration, level) == (str(first.id), False)
        assert outside.keys(integration.url) == ["a"]
        assert outside.rows(integration.url, "select count(*) from sagas_outbox") == [1]

    @pytest.mark.parametrize("level", LEVELS)
    def test_a_duplicate_of_one_that_rolls_back(self, integration: Integration, level: str) -> None:
        """The second waits, and starts it."""
        with integration.transaction() as unit:
            unit.start(Local, Told(), key="a")
            second = outside.Aside(lambda: self._start(integration, level))
            outside.until_blocked(integration.url)
            unit.rollback()
        id, created = second.join()
        assert created
        assert [str(each) for each in outside.rows(integration.url, "select id from sagas_saga")] == [id]

    @pytest.mark.parametrize("level", LEVELS)
    def test_strangers_do_not_wait_for_each_other(self, integration: Integration, level: str) -> None:
        """Another key is started while a transaction with the first one is open."""
        with integration.transaction() as unit:
            unit.execute(f"set transaction isolation level {level}")
            unit.start(Local, Told(), key="a")
            outside.Aside(lambda: self._start(integration, level, key="b")).join()
            assert outside.keys(integration.url) == ["b"]
            unit.commit()
        assert outside.keys(integration.url) == ["a", "b"]

    def test_a_conflict_in_a_savepoint(self, integration: Integration) -> None:
        """It can be caught around a savepoint as well as without one."""
        with integration.transaction() as unit:
            unit.start(Local, Told("x"), key="a")
            for around in (unit.savepoint, nullcontext):
                with pytest.raises(KeyConflict), around():
                    unit.start(Local, Told("y"), key="a")
            unit.commit()
        assert outside.keys(integration.url) == ["a"]

    def _start(self, integration: Integration, level: str, key: str = "a") -> tuple[str, bool]:
        with integration.transaction() as unit:
            unit.execute(f"set transaction isolation level {level}")
            run = unit.start(Local, Told(), key=key)
            unit.commit()
        return str(run.id), run.created
