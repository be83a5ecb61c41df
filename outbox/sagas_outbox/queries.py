"""Named queries: each lives in a `.sql` file beside its owner and is read once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString

import psycopg
from psycopg.rows import RowFactory, tuple_row

NAMED = re.compile(r"%\((\w+)\)s")


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
    connection: psycopg.Connection[Any],
    sql: LiteralString,
    parameters: Mapping[str, Any],
    *,
    row_factory: RowFactory[Any] = tuple_row,
) -> psycopg.Cursor[Any]:
    """Execute with a plain server-side-binding cursor, whatever cursor class the connection prefers.

    psycopg takes a long statement apart each time that it runs; ours without binary parameters, which all long ones
    are, are numbered once.
    """
    if ")b" in sql:
        return psycopg.Cursor(connection, row_factory=row_factory).execute(sql, parameters)
    text, names = _numbered(sql)
    return psycopg.RawCursor(connection, row_factory=row_factory).execute(text, [parameters[name] for name in names])


@cache
def _numbered(sql: LiteralString) -> tuple[LiteralString, list[str]]:
    """A statement with `$1` for its first parameter, and so on, and the names of those."""
    names = list(dict.fromkeys(NAMED.findall(sql)))
    text = NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", sql).replace("%%", "%")
    return text, names
