"""A pytest plugin: what is tested is the installed wheel, with the versions of the cell that the run is said to be."""

from __future__ import annotations

import importlib
import os
import platform
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.matrix import TOLD, Cell

PACKAGES = ("sagas", "sagas_outbox", "sagas_celery", "sagas_django", "sagas_sqlalchemy")


def found() -> dict[str, str]:
    """The versions that are imported here."""
    minor = {name: ".".join(version(name).split(".")[:2]) for name in ("django", "sqlalchemy", "celery")}
    return {"python": ".".join(platform.python_version_tuple()[:2]), **minor}


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run against anything else."""
    site = Path(sysconfig.get_path("purelib"))
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None or Path(spec.origin).parent != site / name:
            raise pytest.UsageError(f"{name} is not the installed one of {site}, but {spec and spec.origin}")
    if told := os.environ.get(TOLD):
        cell = Cell.from_name(told)
        if (here := found()) != {name: getattr(cell, name) for name in here}:
            raise pytest.UsageError(f"{told} is to be tested, and here is {here}")


def pytest_report_header() -> str:
    """What is tested, in full."""
    names = ("outbox-sagas", "django", "sqlalchemy", "celery", "kombu", "redis", "psycopg")
    return f"installed: Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in names)


@pytest.fixture(autouse=True, scope="session")
def postgres_of_the_cell(request: pytest.FixtureRequest) -> None:
    """The server of this run has the version that the cell names."""
    if told := os.environ.get(TOLD):
        server = request.getfixturevalue("postgres_server")
        import psycopg

        with psycopg.connect(server.dsn) as connection:
            found = connection.info.server_version // 10000
        assert str(found) == Cell.from_name(told).postgres, f"{told} ran on Postgres {found}"
