"""The adapter of docs/conformance.md, as a third party would run it: with pytest, and none of our own fixtures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

from sagas.testing.conformance import CallerSuite, WorkerSuite
from sagas.testing.servers import Postgres

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COUNT = re.compile(r"^\| `(\w+Suite)` \| .+ \| (\d+) \|$", re.MULTILINE)


def test_the_adapter_of_the_page(tmp_path: Path, postgres_server: Postgres) -> None:
    """It passes; what psycopg has not is skipped and said."""
    for name, text in BLOCK.findall(PAGE.read_text()):
        (tmp_path / name).write_text(text)
    name = f"third_party_{uuid.uuid4().hex[:12]}"
    env = {**os.environ, "CONFORMANCE_URL": postgres_server.create_database(name)}
    env.pop("DJANGO_SETTINGS_MODULE", None)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:django", "-p", "no:cacheprovider",
             "test_conformance.py"],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    finally:
        postgres_server.drop_database(name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed, 8 skipped", done.stdout), done.stdout
    assert "nobody says here when the caller commits" in done.stdout


def test_the_numbers_of_the_page() -> None:
    """As many tests as it says, each with the promise that it holds."""
    told = {name: int(number) for name, number in COUNT.findall(PAGE.read_text())}
    found = {}
    for suite in (CallerSuite, WorkerSuite):
        tests = [getattr(suite, name) for name in dir(suite) if name.startswith("test_")]
        assert all(test.__doc__ for test in tests)
        found[suite.__name__] = sum(_cases(test) for test in tests)
    assert told == found


def _cases(test: object) -> int:
    many = 1
    for mark in getattr(test, "pytestmark", ()):
        many *= len(mark.args[1])
    return many
