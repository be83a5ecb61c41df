"""Run one benchmark script in a process of its own and read what it measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sagas.testing.processes import ProcessFailed, ProcessGroup
from tests.benchmarks.report import Measurement

ROOT = Path(__file__).resolve().parents[2]
TAIL = 3  # lines of a failed program's complaint that are worth showing


class NotRun(Exception):
    """A benchmark could not be run; the message says why and what it said last."""


def run_script(command: Sequence[str], *, environment: Mapping[str, str], timeout: float) -> list[Measurement]:
    """Run a script and return its measurements, one for each JSON line it printed.

    Nothing that the script started is left running, whatever became of it.

    Args:
        command: program and arguments.
        environment: what to set on top of this process's own.
        timeout: seconds until it is given up.

    Raises:
        NotRun: it failed, took too long or measured nothing.
        ValueError: it printed a JSON line that is no measurement.
    """
    with ProcessGroup() as group:
        script = group.start(command, env={"PYTHONUNBUFFERED": "1", **environment}, cwd=ROOT)
        try:
            status = script.wait(timeout)
        except ProcessFailed:
            script.kill()
            raise NotRun(f"was given up after {timeout:.0f} s: {tail(script.output())}") from None
        output = script.output()
    if status:
        raise NotRun(f"exit status {status}: {tail(output)}")
    measured = [Measurement.from_line(line) for line in output.splitlines() if line.startswith("{")]
    if not measured:
        raise NotRun(f"printed no measurement: {tail(output)}")
    return measured


def tail(text: str) -> str:
    """The last lines of what a program said, as one line; without a traceback's pointers to columns."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" ^~")]
    return " | ".join(lines[-TAIL:]) or "it said nothing"
