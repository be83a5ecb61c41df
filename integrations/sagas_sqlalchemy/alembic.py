"""Migrations: an Alembic revision of the user's runs the numbered SQL files, online or as `--sql`.

    from sagas_sqlalchemy.alembic import upgrade as sagas_upgrade, downgrade as sagas_downgrade

    def upgrade() -> None:
        sagas_upgrade(op, to=1)

    def downgrade() -> None:
        sagas_downgrade(op, to=0)

In `env.py`, `include_object=sagas_sqlalchemy.alembic.include_object` keeps autogenerate from our tables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal

from sqlalchemy import Connection, MetaData

from sagas.errors import ConfigurationError
from sagas.store.schema_files import NAMES
from sagas_sqlalchemy import ddl
from sagas_sqlalchemy.tables import sagas_tables

NEWEST: Final = len(NAMES)
TABLES: Final = frozenset(sagas_tables(MetaData()).names)
Filter = Callable[[Any, str | None, str, bool, Any], bool]


def upgrade(op: Any, *, to: int, since: int = 0, schema: str | None = None) -> None:
    """Bring our tables to a version. What is there already is left out.

    Args:
        op: `alembic.op`.
        to: the version to bring them to.
        since: the version that an earlier revision brought them to. It matters for `--sql`, which cannot look.
        schema: where the tables are; the one that `sagas_tables` was given. Made if it is not there.

    Raises:
        ConfigurationError: there is no such version, or the database is not at `since`.
    """
    _check_version(to, since)
    present = _present(op, schema)
    if present is not None and present < since:
        raise ConfigurationError(
            f"the tables of sagas are at version {present}, and this revision expects {since}: run the revision that "
            f"calls upgrade(op, to={since}) before it"
        )
    for number in range(max(since, present or 0) + 1, to + 1):
        ddl.install(_run(op), number, schema=schema)


def downgrade(op: Any, *, to: int, schema: str | None = None) -> None:
    """Drop our tables (`to=0`), unless a saga is unfinished. A newer version serves older code as it is, so there is
    nothing to be done for any other `to`.

    Args:
        op: `alembic.op`.
        to: the version to go back to.
        schema: where the tables are.

    Raises:
        ConfigurationError: there is no such version.
    """
    if to != 0:
        _check_version(to, 0)
        return
    ddl.uninstall(_run(op), schema=schema)


def include_object(
    object: Any, name: str | None, type_: str, reflected: bool, compare_to: Any
) -> bool:  # fmt: skip
    """For `context.configure(include_object=...)`: autogenerate leaves our tables alone."""
    return not (type_ == "table" and name in TABLES)


def include_name(
    name: str | None, type_: str, parent_names: Any
) -> Literal[True] | bool:  # fmt: skip
    """For `context.configure(include_name=...)`: our tables are not even read. Use it beside `include_object`."""
    return not (type_ == "table" and name in TABLES)


def including(yours: Filter) -> Filter:
    """An `include_object` that asks yours about everything that is not ours."""

    def both(object: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:
        ours = not include_object(object, name, type_, reflected, compare_to)
        return not ours and yours(object, name, type_, reflected, compare_to)

    return both


def _check_version(to: int, since: int) -> None:
    if not 1 <= to <= NEWEST:
        raise ConfigurationError(f"to={to}: versions of the tables go from 1 to {NEWEST} in this release of sagas")
    if not 0 <= since < to:
        raise ConfigurationError(f"since={since}: a version below to={to}")


def _present(op: Any, schema: str | None) -> int | None:
    """The version in the database; None when nobody can look."""
    if op.get_context().as_sql:
        return None
    where = "" if schema is None else f"{ddl.quoted(schema)}."
    bind: Connection = op.get_bind()
    ask = partial(bind.exec_driver_sql, execution_options={"no_parameters": True})
    name = f"{where}sagas_schema".replace("'", "''")
    if not ask(f"select to_regclass('{name}') is not null").scalar():
        return 0
    return int(ask(f"select coalesce(max(version), 0) from {where}sagas_schema").scalar_one())  # noqa: S608 - quoted


def _run(op: Any) -> ddl.Run:
    context = op.get_context()
    if context.as_sql:
        return lambda statement: context.impl.static_output(f"{statement};")
    bind: Connection = op.get_bind()
    return lambda statement: bind.exec_driver_sql(statement, execution_options={"no_parameters": True})
