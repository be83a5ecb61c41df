"""Local steps among others who want the same rows, and on connections that break: once all the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from sagas.ports import LocalTransaction, Store
from sagas.states import Status
from sagas.testing.conformance import outside
from sagas.testing.conformance.adapter import Integration
from sagas.testing.conformance.base import Suite
from sagas.testing.conformance.sagas import Local, stage

SUICIDE = "select pg_terminate_backend(pg_backend_pid())"
KEYS = ("a", "b", "c")
ROWS = "insert into conformance_note (text) values ('one'), ('two')"
TOUCH = "update conformance_note set text = text where text = '{}'"


class CrashSuite(Suite):
    """Exactly once, whatever happens to the transaction."""

    @pytest.mark.parametrize("many", [1, 3])
    def test_a_connection_that_breaks_in_a_body(self, integration: Integration, many: int) -> None:
        """All that shared it were rolled back, and are done again."""

        def breaks(run: Any) -> None:
            if stage.calls["body", run.key] == 1:
                integration.execute(run, SUICIDE)

        stage.plays("breaks", breaks)
        self.begin(integration, Local, "a", what="breaks")
        if many > 1:
            self.begin(integration, Local, *KEYS[1:many])
        outside.Aside(lambda: outside.run_together(integration.store)).join()
        self._everybody_once(integration, KEYS[:many])

    @pytest.mark.parametrize("many", [1, 3])
    def test_a_commit_that_never_arrived(self, integration: Integration, many: int) -> None:
        """The connection broke before it: everything is done again by whoever takes over."""
        self.begin(integration, Local, *KEYS[:many])
        outside.Aside(lambda: outside.run_together(Breaking(integration.store, arrived=False))).join()
        assert outside.notes(integration.url) == []
        self._everybody_once(integration, KEYS[:many])

    @pytest.mark.parametrize("many", [1, 3])
    def test_an_acknowledgement_that_was_lost(self, integration: Integration, many: int) -> None:
        """The commit arrived and nobody was told: the log knows, and no body runs again."""
        self.begin(integration, Local, *KEYS[:many])
        outside.Aside(lambda: outside.run_together(Breaking(integration.store, arrived=True))).join()
        assert len(outside.notes(integration.url)) == many
        self._everybody_once(integration, KEYS[:many])
        assert set(stage.calls.values()) == {1}

    def test_a_deadlock(self, integration: Integration) -> None:
        """Two bodies that want each other's rows: Postgres ends one, both finish, each writes once."""
        outside.rows(integration.url, f"with made as ({ROWS} returning 1) select count(*) from made")
        barrier = threading.Barrier(2, timeout=outside.PATIENCE)

        def crossing(mine: str, other: str) -> Callable[[Any], None]:
            def body(run: Any) -> None:
                integration.execute(run, TOUCH.format(mine))
                if stage.calls["body", run.key] == 1:
                    barrier.wait()
                integration.execute(run, TOUCH.format(other))

            return body

        stage.plays("there", crossing("one", "two"))
        stage.plays("back", crossing("two", "one"))
        self.begin(integration, Local, "a", what="there")
        self.begin(integration, Local, "b", what="back")
        outside.drain(integration.store, concurrency=2)
        assert outside.notes(integration.url) == ["body a", "body b", "one", "two"]
        self.ended(integration, Status.COMPLETED, "a", "b")
        assert sum(stage.calls.values()) > 2  # one of them was rolled back

    def test_a_message_that_is_delivered_twice(self, integration: Integration) -> None:
        """The second one begins nothing that the first has done."""
        self.begin(integration, Local, *KEYS)
        with outside.one_worker(integration.store) as worker:
            begun = outside.begin_due(worker)
            worker.run(worker.take_up(begun))
            worker.run(worker.take_up(begun))
        self._everybody_once(integration, KEYS)
        assert set(stage.calls.values()) == {1}

    def test_a_saga_that_moved_on(self, integration: Integration) -> None:
        """A row that somebody took over between begin and lock is not run."""
        self.begin(integration, Local, *KEYS)
        with outside.one_worker(integration.store) as worker:
            begun = outside.begin_due(worker)
            outside.rows(integration.url, "update sagas_outbox set token = token + 1 returning id")
            worker.run(worker.take_up(begun))
        assert (outside.notes(integration.url), dict(stage.calls)) == ([], {})

    def test_nobody_takes_over_while_a_body_runs(self, integration: Integration) -> None:
        """Its outbox row is locked, whatever its lease says."""
        free = "select id from sagas_outbox for update skip locked"
        found: list[Any] = []
        stage.plays("looks", lambda run: found.append(outside.rows(integration.url, free)))
        self.begin(integration, Local, "a", what="looks")
        outside.drain(integration.store)
        assert found == [[]]

    def _everybody_once(self, integration: Integration, keys: tuple[str, ...]) -> None:
        outside.drain(integration.store)
        outside.expire_leases(integration.store)
        outside.drain(integration.store)
        assert outside.notes(integration.url) == [f"body {key}" for key in keys]
        self.ended(integration, Status.COMPLETED, *keys)


class Breaking:
    """A store whose first commit of local steps goes wrong.

    Args:
        store: the integration's.
        arrived: whether the commit reached the server.
    """

    def __init__(self, store: Store, *, arrived: bool) -> None:
        self._store, self._arrived, self._left = store, arrived, 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def local(self) -> Iterator[LocalTransaction]:
        """The first one breaks at its commit."""
        breaks, self._left = self._left > 0, self._left - 1
        with self._store.local() as opened:
            yield opened
            if breaks and not self._arrived:
                self._end(opened.connection)
        if breaks and self._arrived:
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    def _end(self, connection: psycopg.Connection[Any]) -> None:
        with self._store.connect() as other:
            other.execute("select pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])
