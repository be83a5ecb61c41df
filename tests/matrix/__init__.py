"""Versions tested together: each cell is run by `noxfile.py` in an environment of its own, against the built wheel."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations, product
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).with_name("cells.toml")
TOLD: Final = "SAGAS_MATRIX_CELL"  # in the environment of a cell's tests: which cell they are in

Pair = frozenset[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One combination of versions."""

    python: str
    django: str
    sqlalchemy: str
    celery: str
    postgres: str

    @property
    def name(self) -> str:
        """As sessions are called: `py3.11-dj5.2-sa2.0-celery5.5-pg18`."""
        return f"py{self.python}-dj{self.django}-sa{self.sqlalchemy}-celery{self.celery}-pg{self.postgres}"

    @classmethod
    def from_name(cls, name: str) -> Cell:
        """The cell of that name."""
        (found,) = [cell for cell in Matrix.read().cells if cell.name == name]
        return found

    def pairs(self) -> set[Pair]:
        """Every two versions that meet here."""
        return set(map(frozenset, combinations(((each.name, getattr(self, each.name)) for each in fields(self)), 2)))


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """What `cells.toml` says."""

    versions: Mapping[str, Sequence[str]]
    impossible: Sequence[Pair]
    cells: Sequence[Cell]
    tests: Sequence[str]  # what each cell runs
    copied: Sequence[str]  # files and folders of the repository that the tests need; none of ours to import
    minutes: int  # for one cell, installation included

    @classmethod
    def read(cls) -> Matrix:
        """Read the file."""
        said: Mapping[str, Any] = tomllib.loads(FILE.read_text())
        return cls(
            versions=said["versions"],
            impossible=[frozenset(pair.items()) for pair in said["impossible"]],
            cells=[Cell(**cell) for cell in said["cell"]],
            **said["slice"],
        )

    def pairs(self) -> Iterator[Pair]:
        """Every two versions that can meet."""
        for one, other in combinations(self.versions, 2):
            for versions in product(self.versions[one], self.versions[other]):
                pair = frozenset(zip((one, other), versions, strict=True))
                if pair not in self.impossible:
                    yield pair
