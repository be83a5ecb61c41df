"""What every part of the suite has: the integration, an empty database, and a look at who was left behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sagas.definition import Saga
from sagas.states import Status
from sagas.testing.conformance import outside
from sagas.testing.conformance.adapter import Integration
from sagas.testing.conformance.sagas import Told, stage


class Suite:
    """The base of all parts."""

    @pytest.fixture
    def integration(self) -> Integration:
        """The integration under test: a subclass overrides this fixture."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture `integration`")

    @pytest.fixture(autouse=True)
    def _before_and_after(self, integration: Integration) -> Iterator[None]:
        """An empty database before, and no session idle in a transaction after."""
        outside.reset(integration.url)
        stage.set_up(integration)
        yield
        outside.until_nobody_is_idle_in_transaction(integration.url)

    def begin(self, integration: Integration, saga: type[Saga[Any]], *keys: str, what: str = "write") -> None:
        """Start a saga for each key, in one transaction."""
        with integration.transaction() as unit:
            for key in keys:
                unit.start(saga, Told(what), key=key)
            unit.commit()

    def ended(self, integration: Integration, status: Status, *keys: str) -> None:
        """Each of them has come to that end."""
        found = outside.statuses(integration.url)
        assert {key: found[key] for key in keys} == dict.fromkeys(keys, status)


def sqlstate(problem: BaseException | None) -> str | None:
    """The five characters of the database's error behind an exception."""
    while problem is not None:
        for each in (problem, getattr(problem, "orig", None)):
            found = getattr(each, "sqlstate", None) or getattr(each, "pgcode", None)
            if found:
                return str(found)
        problem = problem.__cause__ or problem.__context__
    return None
