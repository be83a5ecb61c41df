"""The peers' own virtual environment: made on demand, kept while its list of needs stays the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.benchmarks.scripts import ROOT, NotRun, tail

QUICK = ("dbos>=3.4,<4", "celery[redis]>=5.5,<5.8", "psycopg[binary]>=3.2")
ALL = (*QUICK, "absurd-sdk==0.5.1", "absurdctl==0.5.1", "django-celery-outbox>=0.4.3,<0.5", "django>=5.2,<5.3",
       "sqlalchemy>=2.0", "httpx", "matplotlib")  # fmt: skip
FOLDER = ROOT / ".venv-bench"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
PATIENCE = 300.0  # seconds for one command; a slow registry is no reason to hang for ever


def peer_python(peers: tuple[str, ...] = QUICK) -> str:
    """The peers' Python, installed first if need be.

    Args:
        peers: what has to be there; what is there beyond that is no reason to install anew.

    Raises:
        NotRun: the peers cannot be installed.
    """
    python, done = FOLDER / "bin" / "python", FOLDER / "installed.txt"
    needs = {*peers, sys.version.replace("\n", " ")}
    if python.exists() and done.exists() and needs <= {*done.read_text().splitlines()}:
        return str(python)
    print(f"installing the peers into {FOLDER.name}: {', '.join(peers)}", flush=True)
    _run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(FOLDER)])  # ours installs into it
    (FOLDER / ".gitignore").write_text("*\n")
    _run([*PIP, "--python", str(python), "install", "--quiet", *peers])
    done.write_text("\n".join(needs))  # last: an install that was cut short is begun again
    return str(python)


def draw(python: str, script: str, source: Path, target: Path) -> None:
    """Draw figures by a library that only the peers' environment has.

    Args:
        python: the peers', with all of them.
        script: file beside this one.
        source: JSON.
        target: SVG.

    Raises:
        subprocess.SubprocessError: it could not be drawn.
    """
    path = ROOT / "tests" / "benchmarks" / script
    subprocess.run([python, str(path), str(source), str(target)], check=True, timeout=60)


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.CalledProcessError as error:
        raise NotRun(f"the peers cannot be installed: {tail(error.stderr or error.stdout)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotRun(f"the peers cannot be installed: {error}") from error
