"""The suite notices integrations that break their promises: each of these does, in one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from sagas.testing.conformance import CallerSuite, Integration, Unit, WorkerSuite, outside
from sagas.testing.conformance.sagas import stage
from tests.conformance.test_bare import Bare, BareUnit
from tests.conformance.test_django import Django, django_url

__all__ = ["django_url"]  # a fixture


def prepared(integration: Integration) -> Integration:
    """What the suite does before each test."""
    outside.reset(integration.url)
    stage.set_up(integration)
    return integration


class CommitsAtOnce(Bare):
    """Its transactions are none."""

    @contextmanager
    def transaction(self, *, autocommit: bool = False) -> Iterator[Unit]:
        with super().transaction(autocommit=True) as unit:
            unit.execute("select 1")
            yield Careless(unit.using)


class Careless(BareUnit):
    def start(self, *given: Any, **named: Any) -> Any:
        return super().start(*given, own_transaction=True, **named)


class StartsElsewhere(Bare):
    """Sagas are started on another connection than the one with the business transaction."""

    @contextmanager
    def transaction(self, *, autocommit: bool = False) -> Iterator[Unit]:
        with super().transaction(autocommit=autocommit) as unit, psycopg.connect(self.url) as other:
            yield Elsewhere(unit, other)


class Elsewhere(BareUnit):
    def __init__(self, unit: Unit, other: psycopg.Connection[Any]) -> None:
        super().__init__(other)
        self._business = unit

    def execute(self, statement: str) -> Any:
        return self._business.execute(statement)

    def commit(self) -> None:
        self._business.commit()
        super().commit()


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (CommitsAtOnce, CallerSuite.test_neither_is),
        (CommitsAtOnce, CallerSuite.test_it_commits_nothing_itself),
        (StartsElsewhere, CallerSuite.test_both_are_committed),
    ],
)
def test_a_caller_that_breaks_a_promise(kind: type[Bare], test: Any, conformance_url: str) -> None:
    """A test that holds the promise fails."""
    with pytest.raises(AssertionError):
        test(CallerSuite(), prepared(kind(conformance_url)))


class Wrong:
    """A store that does one thing wrong."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class NoSavepoints(Wrong):
    @contextmanager
    def local(self) -> Iterator[Any]:
        with self._store.local() as opened:
            yield Bald(opened)


class Bald(Wrong):
    @contextmanager
    def savepoint(self) -> Iterator[None]:
        yield


class LeavesOpen(Wrong):
    def after_body(self) -> None:
        pass

    def between(self) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (NoSavepoints, WorkerSuite.test_one_that_raises_did_not_happen),
        (NoSavepoints, WorkerSuite.test_neighbours_share_a_transaction_but_no_fate),
        (LeavesOpen, WorkerSuite.test_one_that_a_body_left_open),
    ],
)
def test_a_store_that_breaks_a_promise(
    kind: type[Wrong], test: Any, django_url: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that holds the promise fails."""
    settings.SAGAS = {"WAKE": False}
    monkeypatch.setattr(outside, "PATIENCE", 2.0)
    integration = prepared(Django(django_url))
    integration.store = kind(integration.store)
    with pytest.raises(AssertionError):
        test(WorkerSuite(), integration)
