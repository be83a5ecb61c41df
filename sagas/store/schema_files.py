"""The numbered SQL files that make the database what it should be."""

from __future__ import annotations

from importlib.resources import files

NAMES = ("0001_initial",)


def schema_sql(number: int) -> str:
    """The SQL that brings a database from version `number - 1` to `number`.

    Raises:
        IndexError: there is no such version.
    """
    if not 1 <= number <= len(NAMES):
        raise IndexError(f"there is no schema version {number}; the newest is {len(NAMES)}")
    return files("sagas.store").joinpath("schema", f"{NAMES[number - 1]}.sql").read_text(encoding="utf-8")
