"""The tutorials, followed in an empty folder: their sagas survive kill -9."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sagas.testing.processes import ProcessGroup
from sagas.testing.servers import Postgres
from tests.docs.reader import Reader

SLOW = {"sleep(30)": "sleep(60)"}  # a reader has half a minute to kill the worker; a busy machine may need more


@pytest.fixture
def database(postgres_server: Postgres) -> Iterator[str]:
    """URL of an empty database."""
    name = f"tutorial_{uuid.uuid4().hex[:12]}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture
def port() -> str:
    """A free port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


@pytest.mark.slow
def test_the_django_tutorial(tmp_path: Path, database: str, process_group: ProcessGroup) -> None:
    """tutorial-django.md: a worker that is killed right after the bank booked; the charge happens once."""
    address = urlsplit(database)
    exported = {
        "PGHOST": str(address.hostname), "PGPORT": str(address.port), "PGUSER": str(address.username),
        "PGPASSWORD": address.password or "", "PGDATABASE": address.path.strip("/"),
    }  # fmt: skip
    assert Reader(tmp_path, exported, process_group, SLOW).follow("tutorial-django.md") > 15


@pytest.mark.full
def test_the_fastapi_tutorial(tmp_path: Path, database: str, process_group: ProcessGroup, port: str) -> None:
    """tutorial-fastapi.md: the same with SQLAlchemy, asyncpg and async steps."""
    exported = {"DATABASE_URL": database.replace("postgresql:", "postgresql+asyncpg:")}
    reader = Reader(tmp_path, exported, process_group, {**SLOW, "8000": port})
    assert reader.follow("tutorial-fastapi.md") > 12
