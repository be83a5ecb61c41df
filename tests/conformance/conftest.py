"""The suite of `sagas.testing.conformance`, run by our own integrations on a database of this folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from sagas.testing.servers import Postgres


@pytest.fixture(scope="session")
def conformance_url(postgres_server: Postgres, template_database: str) -> Iterator[str]:
    """URL of a migrated database; the suite empties it before each test."""
    name = f"conformance_{uuid.uuid4().hex[:12]}"
    yield postgres_server.create_database(name, template=template_database)
    postgres_server.drop_database(name)
