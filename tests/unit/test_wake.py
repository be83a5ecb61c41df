"""Hints that there is work: throttled when sent, heard by whoever listens."""

from __future__ import annotations

import threading

import psycopg
import pytest

from sagas.testing.servers import Postgres
from sagas_outbox import wake
from sagas_outbox.wake import NOTIFY, THROTTLE, Ear, Throttle
from tests.unit.test_flight import Clock


def test_a_process_sends_one_hint_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand starts in a second are not a thousand hints; who listens looks again soon enough."""
    clock = Clock()
    monkeypatch.setattr(wake, "time", clock)
    throttle = Throttle()
    assert [throttle.allows() for _ in range(5)] == [True, False, False, False, False]
    clock.now += 1.01 * THROTTLE
    assert [throttle.allows() for _ in range(2)] == [True, False]


def test_an_ear_hears_hints_also_after_its_connection_was_cut(postgres_server: Postgres) -> None:
    """And says so itself when it begins to listen: something may have been missed before."""
    heard, application = threading.Semaphore(0), "sagas-test-ear"
    ear = Ear(
        lambda: psycopg.connect(postgres_server.dsn, autocommit=True, application_name=application),
        heard=lambda: heard.release(),
    )  # fmt: skip
    ear.start()
    try:
        with psycopg.connect(postgres_server.dsn, autocommit=True) as sender:
            assert heard.acquire(timeout=10), "it did not begin to listen"
            sender.execute(NOTIFY)
            assert heard.acquire(timeout=10), "it did not hear"
            sender.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s", [application]
            )
            assert heard.acquire(timeout=10), "it did not listen again"
            sender.execute(NOTIFY)
            assert heard.acquire(timeout=10), "it did not hear again"
    finally:
        ear.stop()
    assert not ear._thread.is_alive()
