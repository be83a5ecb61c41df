"""The numbered SQL files, statement by statement, in a schema of the user's choice.

One statement at a time, because asyncpg takes no more; as they are, because function bodies hold `%`, `:` and `;`.
The files name tables without a schema, so `search_path` says where they go. It is put back afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from sagas.endings import statements
from sagas.store.schema_files import schema_sql
from sagas_outbox.queries import query

Run = Callable[[str], object]

FUNCTIONS: Final = (  # what `Table` objects cannot describe
    "create function", "create or replace function", "create trigger", "create or replace trigger", "drop function",
    "drop trigger", "create view", "insert into sagas_schema",
)  # fmt: skip
OURS: Final = re.compile(r"create (?:or replace )?function (sagas_\w+)\s*\(([^)]*)\)", re.IGNORECASE)
KEEP_PATH: Final = "select set_config('sagas.search_path', current_setting('search_path'), false)"
PATH_BACK: Final = "select set_config('search_path', current_setting('sagas.search_path'), false)"


def install(run: Run, number: int, *, schema: str | None, only: tuple[str, ...] = ("",)) -> None:
    """Run one of the numbered files.

    Args:
        run: sends one statement, exactly as it is.
        number: which file.
        schema: where the tables go; None: wherever `search_path` leads.
        only: beginnings of the statements to run; all by default.
    """
    sql = schema_sql(number)
    chosen = [each for each in statements(sql) if each.lower().startswith(only)]
    in_schema(run, [*chosen, *_pinned(sql, schema)], schema)


def uninstall(run: Run, *, schema: str | None, only: tuple[str, ...] = ("",)) -> None:
    """Drop the tables and functions.

    Args:
        run: sends one statement, exactly as it is.
        schema: where they are.
        only: beginnings of the statements to run; all by default.
    """
    script = statements(query("sagas_sqlalchemy", "drop"))
    in_schema(run, [each for each in script if each.lower().startswith(only)], schema)


def in_schema(run: Run, script: list[str], schema: str | None) -> None:
    """Run statements with `search_path` at the schema, which is made if it is not there."""
    if schema is None:
        for statement in script:
            run(statement)
        return
    for statement in (make_schema(schema), KEEP_PATH, f"set search_path to {quoted(schema)}", *script, PATH_BACK):
        run(statement)


def make_schema(schema: str) -> str:
    """A statement that makes a schema, and asks for no privilege when it is there already."""
    text = schema.replace("'", "''")
    return (
        f"do $sagas$ begin if to_regnamespace('{quoted(schema).replace(chr(39), chr(39) * 2)}') is null then "
        f"execute format('create schema %I', '{text}'); end if; end $sagas$"
    )


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _pinned(sql: str, schema: str | None) -> list[str]:
    """Functions in a schema find its tables whatever the caller's `search_path` is."""
    if schema is None:
        return []
    signatures = (f"{name}({_types(arguments)})" for name, arguments in OURS.findall(sql))
    return [f"alter function {each} set search_path to {quoted(schema)}" for each in signatures]


def _types(arguments: str) -> str:
    return ", ".join(each.split()[-1] for each in arguments.split(",") if each.strip())
