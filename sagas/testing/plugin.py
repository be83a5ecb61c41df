"""The pytest plugin: the fixture `sagas`, and clock and answers as they were after each test.

pytest loads it by itself (entry point `sagas`). It imports the kit when a test asks for it, and nothing before.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from sagas.testing import since

if TYPE_CHECKING:
    from sagas.testing.kit import Kit

KIT = "sagas.testing.kit"


class _Django:
    """Where Django is set up. pytest-django makes a test database only for tests that it sees ask for one."""

    @pytest.fixture
    def sagas_using(self, db: None) -> None:
        """Where the kit finds sagas, as for `start(using=...)`: Django's default database, in a transaction of the test
        or, where the test asks for `transactional_db`, without one. Override it to return another connection or alias.
        """


class _Elsewhere:
    @pytest.fixture
    def sagas_using(self) -> None:
        """Where the kit finds sagas, as for `start(using=...)`. Override it to return your session or connection."""


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settle what `sagas_using` is, before fixtures are collected."""
    conf = sys.modules.get("django.conf")
    django = conf is not None and conf.settings.configured and config.pluginmanager.hasplugin("django")
    config.pluginmanager.register(_Django() if django else _Elsewhere(), "sagas: where its kit finds sagas")


@pytest.fixture
def sagas(sagas_using: Any) -> Kit:
    """The testing kit, bound to the database of the test."""
    from sagas.testing.kit import Kit

    return Kit(sagas_using)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """What is committed from here on is the test's, also what its fixtures start."""
    since.begin()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The stories of its sagas belong into the report of a test that failed."""
    report = yield
    kit = sys.modules.get(KIT)
    if kit is not None and report.when == "call" and report.failed and not _told(call) and (told := kit.stories()):
        report.sections.append(("sagas of this test", told))
    return report


def _told(call: pytest.CallInfo[None]) -> bool:
    """Whether the error of the test has its sagas' stories in it."""
    return call.excinfo is not None and call.excinfo.type.__name__ == "Unfinished"


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Nothing that a test has moved or answered outlives it."""
    try:
        return (yield)
    finally:
        kit = sys.modules.get(KIT)
        if kit is not None:
            kit.reset()
