"""A database with the roles of `sagas roles`, and the fixtures of tests that run sagas in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import psycopg
import pytest
from pytest_django import DjangoDbBlocker

from tests.integration.conftest import database_alias, quiet, shop, shop_url, world
from tests.security.users import ROLES, for_bodies, forget_roles
from tests.settings import database_from_url

__all__ = ["quiet", "shop", "shop_url", "world"]

AsRole = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def guarded(fresh_database: str) -> Iterator[str]:
    """URL, for the owner, of a migrated database that has the roles."""
    from sagas.store.schema_files import roles_sql

    with psycopg.connect(fresh_database, autocommit=True) as owner:
        owner.execute(roles_sql())
        owner.execute(for_bodies("sagas_application", "sagas_worker"))
        yield fresh_database
        forget_roles(owner)


@pytest.fixture
def as_role(guarded: str, django_db_blocker: DjangoDbBlocker, quiet: None) -> Iterator[AsRole]:
    """Lets the alias "default" connect as somebody who has no more than one of the roles."""

    @contextmanager
    def connected(role: str) -> Iterator[None]:
        assert role in ROLES
        entry = database_from_url(guarded) | {"OPTIONS": {"options": f"-c role={role}"}}
        with database_alias("default", entry):
            yield

    with django_db_blocker.unblock():
        yield connected
