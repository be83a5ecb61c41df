"""Child processes that cannot outlive the process that started them.

    with ProcessGroup() as processes:
        worker = processes.python("manage.py", "sagas", "worker", name="worker")
        worker.wait_for_output("ready")
        worker.kill()

They end with the block, and with us, however we end; see `sagas.testing.keeper`.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sagas.testing.keeping import TAIL, Keeper, Process, ProcessFailed

__all__ = ["Process", "ProcessFailed", "ProcessGroup"]


class ProcessGroup:
    """Processes that belong together, each with an output file; use it in a `with` block.

    Args:
        directory: where the output files go; default: a fresh temporary directory.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or Path(tempfile.mkdtemp(prefix="sagas-processes-"))
        self._keeper = Keeper(None if directory else self.directory)

    def start(
        self,
        argv: Sequence[str | Path],
        *,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        end_signal: int = signal.SIGTERM,
    ) -> Process:
        """Start a process; `env` is added to our environment. See `Keeper.start`."""
        name = name or Path(str(argv[0])).name
        return self._keeper.start(
            argv,
            name=name,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            output=self.directory / f"{len(self.processes):02}-{name}.log",
            end_signal=end_signal,
        )

    def python(
        self,
        *arguments: str | Path,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> Process:
        """Start our own Python with these arguments, its output unbuffered."""
        return self.start(
            [sys.executable, *arguments], name=name, env={"PYTHONUNBUFFERED": "1", **(env or {})}, cwd=cwd
        )

    @property
    def processes(self) -> list[Process]:
        """Every process started so far, ended ones too."""
        return self._keeper.processes

    def report(self) -> str:
        """Show each process, how it ended, and the end of its output."""
        parts = []
        for process in self.processes:
            state = "runs" if process.returncode is None else f"ended with {process.returncode}"
            parts.append(f"--- {process.name} (pid {process.pid}) {state}\n{process.output()[-TAIL:].rstrip()}")
        return "\n".join(parts)

    def close(self) -> None:
        """End every process: SIGTERM, then after 5 seconds SIGKILL."""
        self._keeper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
