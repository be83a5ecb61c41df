"""The program of docs/fastapi.md, put together and run as a reader would: its commands give what it says."""

from __future__ import annotations

import re
import shlex
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagas.testing.processes import Process, ProcessGroup
from sagas.testing.servers import Postgres

PAGE = Path(__file__).parents[2] / "docs" / "fastapi.md"
BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAID = re.compile(r"^\$ (curl .+)\n(.+)$", re.MULTILINE)
COMMAND = re.compile(r"^\$ ((?:python|uvicorn|sagas) .+)$", re.MULTILINE)
MODULES = {"python": [], "uvicorn": ["-m", "uvicorn"], "sagas": ["-m", "sagas.cli"]}
LONGEST = 60.0  # seconds


@pytest.fixture
def env(postgres_server: Postgres) -> Iterator[dict[str, str]]:
    name = f"fastapi_docs_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name).replace("postgresql:", "postgresql+asyncpg:")
    yield {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": ""}
    postgres_server.drop_database(name)


def run(command: str, folder: Path, env: dict[str, str], processes: ProcessGroup) -> Process:
    """Start a command of the page; uvicorn on a free port."""
    program, *arguments = command.replace("--port 8000", "--port 0").split()
    return processes.python(*MODULES[program], *arguments, name=program, env=env, cwd=folder)


def test_the_page_is_a_program_that_runs(tmp_path: Path, env: dict[str, str], process_group: ProcessGroup) -> None:
    """Tables, server, worker; then what a customer, the bank and the office are answered."""
    text = PAGE.read_text()
    for name, block in BLOCK.findall(text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(block)
    tables, server, worker = COMMAND.findall(text)
    assert run(tables, tmp_path, env, process_group).wait(LONGEST) == 0, process_group.report()
    api = run(server, tmp_path, env, process_group)
    api.wait_for_output("Uvicorn running", timeout=LONGEST)
    (port,) = re.findall(r"running on http://\S+:(\d+)", api.output())
    work = run(worker, tmp_path, env, process_group)
    said = SAID.findall(text)
    assert len(said) == 7
    for command, answer in said:
        until_answered(command.replace("localhost:8000", f"127.0.0.1:{port}"), answer, process_group)
    for command, answer in cancelled_in_time(said[0][0]):
        until_answered(command.replace("localhost:8000", f"127.0.0.1:{port}"), answer, process_group)
    work.terminate()
    assert work.wait(LONGEST) == 0


def cancelled_in_time(order: str) -> Iterator[tuple[str, str]]:
    """What a second customer asks, who does not want it after all, and what they are answered."""
    show, cancel = "curl -s localhost:8000/orders/2", "curl -s -X DELETE localhost:8000/orders/2"
    stands = '{{"item":"lamp","status":"{}","saga":"{}","error":"{}"}}'
    yield order, '{"id":2}'
    yield show, stands.format("accepted", "running", "")
    yield cancel, "null"
    yield show, stands.format("cancelled", "cancelled", "cancel")
    yield cancel, '{"detail":"too late: cancelled"}'


def until_answered(command: str, answer: str, processes: ProcessGroup) -> None:
    """Call until that is the answer: a reader is slower than the worker. What changes something is called once."""
    deadline = time.monotonic() + LONGEST
    changes = "-X " in command
    while (found := curl(command)) != answer:
        assert not changes and time.monotonic() < deadline, f"{command}\n{found}\n{processes.report()}"
        time.sleep(0.05)


def curl(command: str) -> str:
    """What curl would say, by Python's own client: not every machine has it."""
    words = shlex.split(command)
    options = {words[at]: words[at + 1] for at in range(len(words) - 1) if words[at] in ("-X", "-d")}
    (address,) = [word for word in words if word.startswith("127.")]
    request = urllib.request.Request(
        f"http://{address}", method=options.get("-X", "GET"), headers={"content-type": "application/json"},
        data=options["-d"].encode() if "-d" in options else None,
    )  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=LONGEST) as answer:
            found: bytes = answer.read()
    except urllib.error.HTTPError as refusal:  # whose text curl shows too
        found = refusal.read()
    return found.decode().strip()
