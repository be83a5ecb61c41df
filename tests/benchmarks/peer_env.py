"""The peers' own virtual environment: made on demand, kept while its list of needs stays the same."""

from __future__ import annotations

import subprocess
import sys

from tests.benchmarks.scripts import ROOT, NotRun, tail

PEERS = ("dbos>=3.4,<4", "celery[redis]>=5.5,<5.8", "psycopg[binary]>=3.2")
FOLDER = ROOT / ".venv-bench"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
PATIENCE = 300.0  # seconds for one command; a slow registry is no reason to hang for ever


def peer_python() -> str:
    """The peers' Python, installed first if need be.

    Raises:
        NotRun: the peers cannot be installed.
    """
    python, done = FOLDER / "bin" / "python", FOLDER / "installed.txt"
    needs = "\n".join((*PEERS, sys.version))
    if python.exists() and done.exists() and done.read_text() == needs:
        return str(python)
    print(f"installing the peers into {FOLDER.name}: {', '.join(PEERS)}", flush=True)
    _run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(FOLDER)])  # ours installs into it
    (FOLDER / ".gitignore").write_text("*\n")
    _run([*PIP, "--python", str(python), "install", "--quiet", *PEERS])
    done.write_text(needs)  # last: an install that was cut short is begun again
    return str(python)


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.CalledProcessError as error:
        raise NotRun(f"the peers cannot be installed: {tail(error.stderr or error.stdout)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotRun(f"the peers cannot be installed: {error}") from error
