"""Relays and workers are told after a commit, and never of what was rolled back."""

from __future__ import annotations

import time

import psycopg
import pytest

from sagas.testing.conformance import outside
from sagas.testing.conformance.adapter import Integration, Unit
from sagas.testing.conformance.base import Suite
from sagas.testing.conformance.sagas import Answer, Asking, Told
from sagas_outbox.wake import CHANNEL, THROTTLE

MARK = "conformance_mark"


class WakeSuite(Suite):
    """Wake-ups. They are hints, so nothing but latency depends on them."""

    @pytest.mark.parametrize("call", ["start", "send", "cancel"])
    def test_after_the_commit(self, integration: Integration, call: str) -> None:
        """Each call that makes work wakes whoever listens, once it is committed and the connection is given back."""
        self._needs_wakes(integration)
        self.begin(integration, Asking, "a")
        with psycopg.connect(integration.url, autocommit=True) as ear:
            ear.execute(f"listen {CHANNEL}")
            self._past_the_throttle()
            with integration.transaction() as unit:
                self._make(unit, call)
                assert list(ear.notifies(timeout=0)) == []
                unit.commit()
            assert len(list(ear.notifies(timeout=outside.PATIENCE, stop_after=1))) == 1

    @pytest.mark.parametrize("call", ["start", "send", "cancel"])
    def test_not_after_a_rollback(self, integration: Integration, call: str) -> None:
        """Nothing was made, so nobody is woken: not by the rollback, and not by a savepoint's in a commit."""
        self._needs_wakes(integration)
        self.begin(integration, Asking, "a")
        with psycopg.connect(integration.url, autocommit=True) as ear:
            ear.execute(f"listen {CHANNEL}")
            ear.execute(f"listen {MARK}")
            self._past_the_throttle()
            with integration.transaction() as unit:
                self._make(unit, call)
                unit.rollback()
            with integration.transaction() as unit:
                with pytest.raises(ZeroDivisionError), unit.savepoint():  # noqa: PT012 - the savepoint is the test
                    self._make(unit, call)
                    raise ZeroDivisionError
                unit.commit()
            with psycopg.connect(integration.url, autocommit=True) as other:
                other.execute(f"notify {MARK}")
            heard = [each.channel for each in ear.notifies(timeout=outside.PATIENCE, stop_after=1)]
            assert heard == [MARK]  # they come in the order of their commits

    @staticmethod
    def _needs_wakes(integration: Integration) -> None:
        if not integration.wakes:
            pytest.skip("nobody says here when the caller commits")

    @staticmethod
    def _past_the_throttle() -> None:
        time.sleep(2 * THROTTLE)  # a process sends at most one hint in that time; the next one is to be heard

    @staticmethod
    def _make(unit: Unit, call: str) -> None:
        if call == "start":
            unit.start(Asking, Told(), key="b")
        elif call == "send":
            unit.send(Asking.answer, Answer("yes"), key="a")
        else:
            unit.cancel(Asking, key="a", reason="a test")
