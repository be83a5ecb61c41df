"""The matrix of versions covers what it says it covers, and the documentation and the metadata say the same."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from tests.matrix import Matrix
from tests.matrix.__main__ import both
from tests.matrix.machine import find_python

ROOT = Path(__file__).parents[2]
MATRIX = Matrix.read()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_two_versions_meet() -> None:
    """Every pair of versions that can be installed together has a cell; each cell stands once, and is possible."""
    met = set().union(*(cell.pairs() for cell in MATRIX.cells))
    assert set(MATRIX.pairs()) == met
    assert len({cell.name for cell in MATRIX.cells}) == len(MATRIX.cells)


@pytest.mark.parametrize("end", [0, -1])
def test_the_oldest_of_all_and_the_newest_of_all_meet(end: int) -> None:
    """These two combinations are the ones most people run."""
    wanted = {name: versions[end] for name, versions in MATRIX.versions.items()}
    assert any(all(getattr(cell, name) == version for name, version in wanted.items()) for cell in MATRIX.cells)


def test_what_the_cells_run_is_there() -> None:
    """A file that was renamed does not silently leave the slice."""
    named = [*MATRIX.tests, *MATRIX.copied]
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_page_shows_the_matrix() -> None:
    """docs/supported.md: `python -m tests.matrix` prints its tables."""
    assert both() in (ROOT / "docs" / "supported.md").read_text()


def test_the_metadata_says_the_same() -> None:
    """Classifiers name the versions of the matrix, and no dependency admits an older one."""
    said = {
        name for name in PROJECT["classifiers"] if name.rpartition(" :: ")[2][:1].isdigit() and "Status" not in name
    }
    python = {f"Programming Language :: Python :: {version}" for version in MATRIX.versions["python"]}
    assert said == python | {f"Framework :: Django :: {version}" for version in MATRIX.versions["django"]}
    assert PROJECT["requires-python"] == f">={MATRIX.versions['python'][0]}"
    extras = PROJECT["optional-dependencies"]
    oldest = {name: versions[0] for name, versions in MATRIX.versions.items()}
    for extra, wanted in {
        "django": f"django>={oldest['django']}",
        "sqlalchemy": f"sqlalchemy>={oldest['sqlalchemy']}",
        "celery": f"celery[redis]>={oldest['celery']}",
    }.items():
        assert wanted in extras[extra]


def test_an_interpreter_is_what_its_name_says() -> None:
    """A version that nobody has is not found, and so its cells are NOT RUN."""
    assert find_python(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert find_python("3.2") is None
