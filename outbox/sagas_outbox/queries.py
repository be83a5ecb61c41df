"""Named queries: each lives in a `.sql` file beside its owner and is read once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString

import psycopg


@cache
def query(package: str, name: str) -> LiteralString:
    """The text of one query.

    Args:
        package: the package whose `sql` folder holds it, such as "sagas_outbox".
        name: the file's name without `.sql`.

    Raises:
        FileNotFoundError: there is no such query.
    """
    text = files(package).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    return text


def run(
    connection: psycopg.Connection[Any], sql: LiteralString, parameters: Mapping[str, Any]
) -> psycopg.Cursor[tuple[Any, ...]]:
    """Execute with a plain server-side-binding cursor, whatever cursor class the connection prefers."""
    return psycopg.Cursor(connection).execute(sql, parameters)
