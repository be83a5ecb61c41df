"""Users' code is accepted, and their slips are found, by `mypy --strict` and by pyright in strict mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(path for path in Path(__file__).parent.glob("*.py") if not path.name.startswith(("test_", "__")))
SOURCES = [ROOT, ROOT / "outbox", ROOT / "integrations"]  # where an installed package would be


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """The files in a project of somebody else."""
    for file in FILES:
        (tmp_path / file.name).write_text(file.read_text())
    return tmp_path


@pytest.mark.slow
def test_mypy_strict(users: Path) -> None:
    """No error but those that are marked, and no mark too many."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache' / 'users'}",
         "--follow-imports=silent", *(file.name for file in FILES)],
        cwd=users, capture_output=True, text=True, timeout=300,
        env={**os.environ, "MYPYPATH": os.pathsep.join(map(str, SOURCES))},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_strict(users: Path) -> None:
    """The same. pyright is a program of node, which its package fetches once where there is none."""
    (users / "pyrightconfig.json").write_text(json.dumps({
        "typeCheckingMode": "strict", "pythonVersion": "3.11", "venvPath": str(ROOT), "venv": ".venv",
        "extraPaths": [str(source) for source in SOURCES],
    }))  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable], cwd=users,
        capture_output=True, text=True, timeout=300, env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )  # fmt: skip
    try:
        said = json.loads(done.stdout)
    except ValueError:
        pytest.skip(f"NOT RUN: pyright did not start here: {(done.stdout + done.stderr)[-300:]}")
    wrong = [f"{each['file']}:{each['range']['start']['line'] + 1}: {each['message']}"
             for each in said["generalDiagnostics"]]  # fmt: skip
    assert said["summary"]["filesAnalyzed"] >= len(FILES)
    assert not wrong, "\n".join(wrong)


def test_every_package_says_that_it_is_typed() -> None:
    """`py.typed`, without which checkers take everything for Any."""
    packages = [ROOT / "sagas", ROOT / "outbox" / "sagas_outbox", *(ROOT / "integrations").glob("sagas_*")]
    assert len(packages) == 5
    assert not [package for package in packages if not (package / "py.typed").exists()]
