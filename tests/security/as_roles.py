"""Running tests of other folders under the roles: `pytest -p tests.security.as_roles tests/integration/...`.

Callers are then `suite_web`, workers and local steps `suite_worker`, the admin and commands `suite_operator` and so on,
each of whom has no more than a role of `sagas roles`. Processes that tests start log in as them. What a test itself
looks at or breaks is still done by the owner of the tables.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import psycopg
import pytest

from tests.security.patches import patch_all
from tests.security.users import grant, seen

TEMPLATES = ("template_database", "plant_template", "faults_template", "shop_template")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Databases that others are cloned from have the roles, so that they need not be made each time."""
    name = yield
    if fixturedef.argname in TEMPLATES:
        url = request.getfixturevalue("postgres_server").url(name)
        with psycopg.connect(url, autocommit=True) as owner:
            grant(owner)
    return name


@pytest.fixture(scope="session", autouse=True)
def _everywhere() -> Iterator[None]:
    """Everybody connects as one of the users."""
    with pytest.MonkeyPatch.context() as patch:
        patch_all(patch)
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say who was there, so that a run in which nobody had a role does not pass for one."""
    terminalreporter.write_line(
        "under the roles: " + ", ".join(f"{name} {count}" for name, count in sorted(seen.items()))
    )
