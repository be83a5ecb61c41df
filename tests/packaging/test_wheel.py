"""The built wheel holds what it must and nothing that gets in a user's way."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from sagas.testing.binaries import postgres_versions
from tests.matrix import Cell, Matrix
from tests.matrix.machine import find_postgres, find_python

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "sagas": "sagas",
    "sagas_outbox": "outbox/sagas_outbox",
    "sagas_django": "integrations/sagas_django",
    "sagas_sqlalchemy": "integrations/sagas_sqlalchemy",
    "sagas_celery": "integrations/sagas_celery",
}

CORE = (
    "tests/unit/test_machine_undo.py",
    "tests/integration/test_checks.py",
    "tests/integration/test_start.py",
    "tests/integration/test_worker.py",
    "tests/relay/test_beside.py",
    "tests/sqlalchemy/test_runtime.py",
)


def run(command: Sequence[str | Path], cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Run to the end; a failure shows what was said."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with the hatchling that the dev extra installed: no network is needed."""
    target = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", target, ROOT], cwd=target)
    (built,) = target.glob("outbox_sagas-*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_only_our_packages_are_on_top(names: set[str]) -> None:
    """`outbox` and `integrations` are common names of users' own apps; tests and examples are not shipped."""
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == set(PACKAGES)


def test_every_file_of_each_package_is_in(names: set[str]) -> None:
    """SQL, templates and py.typed are as much part of it as the modules."""
    for package, folder in PACKAGES.items():
        source = ROOT / folder
        files = [path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        expected = {f"{package}/{path.relative_to(source)}" for path in files if not path.name.startswith(".")}
        assert expected <= names, f"missing from the wheel: {sorted(expected - names)}"
        assert f"{package}/py.typed" in names
    assert any(name.startswith("sagas/") and name.endswith(".sql") for name in names)


def test_installed_alone_it_imports_without_a_framework(wheel: Path, tmp_path: Path) -> None:
    """The core needs psycopg, msgspec and uuid-utils; importing it brings in no Django, SQLAlchemy or Celery."""
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run([*pip, "--no-deps", "--no-index", "--target", site, wheel], cwd=tmp_path)
    script = (
        "import sys; sys.path = [p for p in sys.path if p not in sys.argv[2:]]; sys.path.insert(0, sys.argv[1])\n"
        "import sagas, sagas_outbox\n"
        "assert sagas.__file__.startswith(sys.argv[1]), sagas.__file__\n"
        "assert sagas_outbox.__file__.startswith(sys.argv[1]), sagas_outbox.__file__\n"
        "import importlib.metadata; print(importlib.metadata.version('outbox-sagas'))\n"
        "import importlib.util\n"
        "assert not [n for n in ('outbox', 'integrations') if importlib.util.find_spec(n)]\n"
        "loaded = {'django', 'sqlalchemy', 'celery', 'kombu', 'redis'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    ours = [str(ROOT), str(ROOT / "outbox"), str(ROOT / "integrations")]
    said = run([sys.executable, "-c", script, site, *ours], cwd=tmp_path)
    assert said.strip() in str(wheel)


def farthest() -> Cell:
    """The cell that has the fewest versions in common with what runs here, of those that this machine offers."""
    here = {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}", "postgres": str(max(postgres_versions())),
        **{name: version(name).rpartition(".")[0] for name in ("django", "sqlalchemy", "celery")},
    }  # fmt: skip
    offered = [each for each in Matrix.read().cells if find_python(each.python) and find_postgres(each.postgres)]
    return min(offered, key=lambda cell: sum(getattr(cell, name) == version for name, version in here.items()))


def test_the_wheel_keeps_the_core_promises_under_other_versions() -> None:
    """In an environment where nothing of the source tree can be imported: one cell of the matrix, and the core of its
    tests; `make test-all` runs all of both."""
    session = f"matrix({farthest().name})"
    said = run([sys.executable, "-m", "nox", "-s", session, "--", *CORE], cwd=ROOT, env=without_ours(os.environ))
    assert " passed" in said and "failed" not in said and "NOT RUN" not in said, said


def without_ours(environment: Mapping[str, str]) -> dict[str, str]:
    """Nothing that leads to this source tree, or tells the inner pytest of the outer one."""
    return {name: value for name, value in environment.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))}
