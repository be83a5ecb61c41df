"""What of the matrix this machine offers: interpreters and Postgres servers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from sagas.testing.binaries import postgres_versions


def find_python(version: str) -> str | None:
    """Path of a CPython of that version, such as "3.12", which can make environments; None if there is none."""
    return next((path for path in _candidates(version) if _is(path, version)), None)


def find_postgres(version: str) -> bool:
    """Whether `sagas.testing` can start a Postgres of that major version, installed or from a wheel."""
    return int(version) in postgres_versions()


def _candidates(version: str) -> Iterator[str]:
    yield sys.executable
    if found := shutil.which(f"python{version}"):
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")  # its programs are often not on the PATH
    places = [*pyenv.glob(f"versions/{version}.*/bin"), *Path("/opt").glob("python*/bin"), Path("/usr/local/bin")]
    yield from (str(place / f"python{version}") for place in sorted(places, reverse=True))
    if uv := shutil.which("uv"):
        said = subprocess.run([uv, "python", "find", version, "--offline"], capture_output=True, text=True, timeout=30)
        yield from said.stdout.split("\n")[:1]


def _is(path: str, version: str) -> bool:
    """Whether it runs and is what its name says: a shim of pyenv may be there without an interpreter behind it."""
    asked = "import sys, venv; print('%d.%d' % sys.version_info[:2], sys.implementation.name)"
    try:
        said = subprocess.run([path, "-c", asked], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return said.returncode == 0 and said.stdout.split() == [version, "cpython"]
