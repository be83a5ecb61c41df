"""Groups of local steps, the first of which is taken by itself; and what came of them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

from tests.sqlalchemy.conftest import begin, rows
from tests.sqlalchemy.shop import Odd, Told


def group(engine: Engine, *told: Told) -> None:
    """Start sagas of which all but one share a transaction, in this order."""
    begin(engine, Odd, Told("counted", "first"), *told)


def noted(url: str) -> list[Any]:
    """What bodies have written, but for that one."""
    return [each for each in rows(url, "select text from note order by text") if each != "first"]


def raw(self: Odd) -> Any:
    """The connection of psycopg beneath a body's session, past SQLAlchemy."""
    return self.session.connection().connection.driver_connection
