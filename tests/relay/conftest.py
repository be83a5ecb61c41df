"""A Redis of our own (tests wipe it), and plants, each with a database of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psycopg
import pytest
from pytest_django.plugin import DjangoDbBlocker

from sagas.testing.processes import ProcessGroup
from sagas.testing.servers import Postgres, Redis, redis
from tests.conftest import REPORT
from tests.relay.plant import Plant, redis_url

PlantMaker = Callable[..., AbstractContextManager[Plant]]


@pytest.fixture(scope="session")
def own_redis() -> Iterator[Redis]:
    """A Redis that may be wiped, frozen and restarted."""
    with redis(private=True) as server:
        yield server


@pytest.fixture(scope="session")
def plant_template(postgres_server: Postgres, template_database: str) -> Iterator[str]:
    """Name of a database with the tables that bodies and triggers note things in."""
    name = f"plant_template_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name, template=template_database)
    with psycopg.connect(url) as connection:
        connection.execute((Path(__file__).parent / "plant.sql").read_bytes())
    yield name
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def new_plant(
    postgres_server: Postgres,
    plant_template: str,
    own_redis: Redis,
    tmp_path_factory: pytest.TempPathFactory,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[PlantMaker]:
    """Makes plants with an empty broker."""

    @contextmanager
    def make(settings: Mapping[str, float | bool] | None = None, *, broker: str | None = None) -> Iterator[Plant]:
        name = f"plant_{uuid.uuid4().hex[:12]}"
        url = postgres_server.create_database(name, template=plant_template)
        own_redis.flushall()
        try:
            with ProcessGroup(tmp_path_factory.mktemp("plant")) as processes:
                plant = Plant(url, broker or redis_url(own_redis), processes, settings)
                try:
                    yield plant
                finally:
                    plant.close()
        finally:
            postgres_server.drop_database(name)

    with django_db_blocker.unblock():
        yield make


@pytest.fixture(autouse=True)
def _report(request: pytest.FixtureRequest) -> None:
    """What a plant's processes said is in the report of a failure."""
    plant = request.node.funcargs.get("plant")
    if isinstance(plant, Plant):
        request.node.stash[REPORT] = plant.processes
