"""The numbered SQL files that make the database what it should be."""

from __future__ import annotations

from importlib.resources import files

NAMES = ("0001_initial",)
PARTS = {  # further files of a version
    "0001_initial": ("0001_calling", "0001_children", "0001_locks", "0001_operating", "0001_queues"),
}


def schema_sql(number: int) -> str:
    """The SQL that brings a database from version `number - 1` to `number`.

    Raises:
        IndexError: there is no such version.
    """
    if not 1 <= number <= len(NAMES):
        raise IndexError(f"there is no schema version {number}; the newest is {len(NAMES)}")
    name = NAMES[number - 1]
    folder = files("sagas.store").joinpath("schema")
    parts = (name, *PARTS.get(name, ()))
    return "\n".join(folder.joinpath(f"{each}.sql").read_text(encoding="utf-8") for each in parts)


def roles_sql() -> str:
    """The SQL that gives roles of least privilege what they need, to be run by the owner of the tables."""
    return files("sagas.store").joinpath("roles.sql").read_text(encoding="utf-8")
