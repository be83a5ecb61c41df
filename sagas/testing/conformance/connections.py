"""Connections of workers: none is kept in a transaction, ended ones are replaced, and forks do not share them."""

from __future__ import annotations

import os
import signal
import threading
import traceback
import warnings
from typing import Any

import pytest

from sagas.errors import ConfigurationError
from sagas.states import Status
from sagas.testing.conformance import outside
from sagas.testing.conformance.adapter import Integration
from sagas.testing.conformance.base import Suite
from sagas.testing.conformance.sagas import External, Local, stage

THREADS = 2
BACKENDS = "select distinct backend from conformance_note where text like '%{}'"


class ConnectionSuite(Suite):
    """What workers do with connections."""

    def test_no_transaction_around_an_external_step(self, integration: Integration) -> None:
        """While its body waits for the other side, it has no session, and nobody has a transaction open."""

        def looks(run: Any) -> None:
            with pytest.raises(ConfigurationError, match="has no session"):
                assert run.session
            # a claim or a heartbeat ends in a moment
            outside.until(integration.url, outside.OPEN, lambda found: bool(found == 0), "open transactions")

        stage.plays("looks", looks)
        self.begin(integration, External, "a", what="looks")
        outside.drain(integration.store)
        self.ended(integration, Status.COMPLETED, "a")

    def test_one_that_a_body_left_open(self, integration: Integration) -> None:
        """It does not outlive the body, nor does it hold up the next one."""
        stage.plays("leaves", integration.leave_open)
        self.begin(integration, External, "a", what="leaves")
        with outside.one_worker(integration.store) as worker:
            worker.run(worker.take_up(outside.begin_due(worker)))
            outside.until_nobody_is_idle_in_transaction(integration.url)
        self.begin(integration, Local, "b")
        outside.run_together(integration.store)
        self.ended(integration, Status.COMPLETED, "a", "b")

    def test_a_connection_that_the_server_ended(self, integration: Integration) -> None:
        """The next local step gets another one: no attempt and no lease is lost on it."""
        self.begin(integration, Local, "a")
        outside.run_together(integration.store)
        self.begin(integration, Local, "b")
        outside.rows(integration.url, outside.CUT)
        outside.until(integration.url, outside.OTHERS, lambda found: bool(found == 0), "sessions")
        outside.run_together(integration.store)
        self.ended(integration, Status.COMPLETED, "a", "b")
        assert stage.calls["body", "b"] == 1

    def test_no_more_connections_after_more_sagas(self, integration: Integration) -> None:
        """A worker keeps no more after fifty sagas than after five, but for one of each thread."""
        counts: list[int] = []
        for many in (5, 50):
            self.begin(integration, Local, *(f"{many}-{number}" for number in range(many)))
            outside.drain(integration.store, concurrency=THREADS)
            counts.append(outside.rows(integration.url, outside.OTHERS)[0])
        assert counts[1] <= counts[0] + THREADS, counts
        assert len(outside.notes(integration.url)) == 55

    def test_a_child_has_its_own(self, integration: Integration) -> None:
        """A process that was forked after the parent had worked opens its own, and leaves the parent's alone."""
        self.begin(integration, Local, "parent")
        outside.run_together(integration.store)
        self.begin(integration, Local, "child-1", "child-2")
        assert in_child(lambda: outside.run_together(integration.store)) == 0
        self.begin(integration, Local, "parent-again")
        outside.run_together(integration.store)
        self.ended(integration, Status.COMPLETED, "parent", "child-1", "child-2", "parent-again")
        mine = set(outside.rows(integration.url, BACKENDS.format("parent")))
        mine |= set(outside.rows(integration.url, BACKENDS.format("parent-again")))
        theirs = set(outside.rows(integration.url, BACKENDS.format("child-1")))
        assert mine and theirs and not mine & theirs


def in_child(work: Any) -> int:
    """Do something in a forked child; returns its exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which workers do as well
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    overdue = threading.Timer(outside.PATIENCE, os.kill, [child, signal.SIGKILL])
    overdue.start()
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        overdue.cancel()
