"""What a command says where the user of the database lacks a right: who may not, and which role it needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from sagas.desk import PACKAGE, Desk
from sagas.errors import ConfigurationError, SagaError
from sagas_outbox.queries import query
from sagas_outbox.rights import denial

OPERATOR: Final = "sagas_operator"  # roles: see `store/roles.sql`
REPAIRER: Final = "sagas_repairer"
PRUNER: Final = "sagas_pruner"
WORKER: Final = "sagas_worker"
RELAY: Final = "sagas_relay"


@contextmanager
def explained(desk: Desk, role: str) -> Iterator[None]:
    """Turn the lack of a right in the block into a message.

    Args:
        desk: where the block works.
        role: the role that has the rights it needs.

    Raises:
        ConfigurationError: the user of the database may not do this.
    """
    try:
        yield
    except SagaError:
        raise
    except Exception as problem:
        said = denial(problem)
        if not said:
            raise
        who = _user(desk)
        raise ConfigurationError(
            f"user {who!r} of the database of {desk.name!r} may not do this ({said}): "
            f'`grant {role} to "{who}"` (`{desk.command} roles` makes the roles)'
        ) from problem


def _user(desk: Desk) -> str:
    """Who commands are for the database."""
    try:
        with desk.connect() as connection:
            row = connection.execute(query(PACKAGE, "operate_who")).fetchone()
    except (SagaError, psycopg.Error):
        return "?"
    return str(row[0]) if row else "?"
