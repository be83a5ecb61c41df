"""The matrix: a slice of the tests in an environment per cell of `tests/matrix/cells.toml`, against the built wheel.

    nox                         every cell, and a table at the end
    nox -s "matrix(py3.12-dj6.1-sa2.0-celery5.7-pg15)"
    nox -- tests/unit -x        another slice, or options of pytest

What this machine does not offer is said to be NOT RUN, never to be passed.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nox

ROOT = Path(__file__).parent
sys.path[:0] = [str(ROOT), str(ROOT / "outbox"), str(ROOT / "integrations")]

from tests.matrix import TOLD, Cell, Matrix  # noqa: E402 - found by the line above
from tests.matrix.machine import find_postgres, find_python  # noqa: E402

nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = False  # said in the table instead

MATRIX = Matrix.read()
BUILT = ROOT / "build" / "matrix"


def cells() -> Iterator[object]:
    """Each cell with the interpreter that it runs on; False (nox: no environment) where there is none."""
    for cell in MATRIX.cells:
        yield nox.param(find_python(cell.python) or False, cell, id=cell.name)


@nox.session
@nox.parametrize(("python", "cell"), list(cells()))
def matrix(session: nox.Session, cell: Cell) -> None:
    """One cell."""
    if not session.python:
        lacking(session, cell, f"no Python {cell.python}")
    if not find_postgres(cell.postgres):
        lacking(session, cell, f"no Postgres {cell.postgres}")
    begun = time.monotonic()
    note(cell, "FAILED", "did not come to its end")
    session.install("--quiet", "--force-reinstall", "--no-deps", wheel(session))  # its version says not what is in it
    session.install(
        "--quiet", "outbox-sagas[tests]", f"django~={cell.django}.0", f"sqlalchemy~={cell.sqlalchemy}.0",
        f"celery~={cell.celery}.0",
    )  # fmt: skip
    there = copied(cell)
    session.chdir(there)
    left = MATRIX.minutes * 60 - (time.monotonic() - begun)
    session.run(
        "timeout", f"{left:.0f}", "python", "-m", "pytest", "-q", "-p", "tests.matrix.installed",
        *(session.posargs or MATRIX.tests),
        env={
            TOLD: cell.name, "SAGAS_TEST_POSTGRES": cell.postgres, "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": None, "DATABASE_URL": None, "REDIS_URL": None,
        },
        external=True,
    )  # fmt: skip
    note(cell, "passed", f"{time.monotonic() - begun:.0f} s")


@nox.session(python=False)
def table(session: nox.Session) -> None:
    """What became of each cell."""
    rows = [(cell.name, *read_note(cell)) for cell in MATRIX.cells]
    print("\n" + "\n".join(f"{name:<44} {state:<8} {what}" for name, state, what in rows))
    print(", ".join(f"{sum(state == each for _, state, _ in rows)} {each}" for each in ("passed", "FAILED", "NOT RUN")))
    print("Cells are chosen so that every two versions meet in one (pairwise), not every combination.")
    if any(state not in ("passed", "NOT RUN") for _, state, _ in rows):
        session.error("not every cell passed")


def lacking(session: nox.Session, cell: Cell, what: str) -> None:
    """Say that a cell is not run."""
    note(cell, "NOT RUN", f"{what} on this machine")
    session.skip(f"NOT RUN: {what} on this machine")


def wheel(session: nox.Session) -> str:
    """Path of the wheel: built once a run, and the tests are copied then too, so that all cells run the same."""
    folder = BUILT / f"run-{os.getpid()}"
    if not folder.exists():
        for old in BUILT.glob("run-*"):  # but not that of a run beside this one
            if not Path("/proc", old.name.partition("-")[2]).exists():
                shutil.rmtree(old)
        build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))
        session.run(*build, external=True, silent=True)
        for name in MATRIX.copied:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / "tests" / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, folder / "tests" / name)
    (built,) = folder.glob("*.whl")
    return str(built)


def copied(cell: Cell) -> Path:
    """A folder with the tests, and nothing of what they test."""
    there = BUILT / cell.name
    shutil.rmtree(there, ignore_errors=True)
    shutil.copytree(BUILT / f"run-{os.getpid()}" / "tests", there)
    return there


def note(cell: Cell, state: str, what: str) -> None:
    """Remember what became of a cell, for the table."""
    BUILT.mkdir(parents=True, exist_ok=True)
    (BUILT / f"{cell.name}.txt").write_text(f"{os.getpid()}\n{state}\n{what}\n")


def read_note(cell: Cell) -> tuple[str, str]:
    """What became of a cell in this run."""
    file = BUILT / f"{cell.name}.txt"
    run, state, what = file.read_text().splitlines() if file.exists() else ("", "", "")
    return (state, what) if run == str(os.getpid()) else ("NOT RUN", "not asked for")
