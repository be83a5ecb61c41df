"""Our side of the keeper: start child processes through it, signal them, wait for them.

Each `Keeper` runs `keeper.py` beside us; it starts the children and ends them when our end of its
pipe closes, which the kernel does for us even after kill -9. See that file for the protocol.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

KEEPER = Path(__file__).with_name("keeper.py")
TAIL = 4000  # characters of output shown in a failure


class ProcessFailed(RuntimeError):
    """A child process could not be started, ended unasked, or did not do in time what was waited for."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """The user a child runs as, where that is not ourselves."""

    uid: int
    gid: int


@dataclass(kw_only=True)
class Process:
    """One child process. `pid` is real; `returncode` is as in `subprocess`, None while it runs."""

    name: str
    argv: Sequence[str]
    output_path: Path
    keeper: Keeper = field(repr=False)
    number: int
    pid: int = 0
    returncode: int | None = None
    error: str | None = None
    answered: threading.Event = field(default_factory=threading.Event, repr=False)
    ended: threading.Event = field(default_factory=threading.Event, repr=False)

    def send_signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the process, or with `group` to it and all its descendants that kept its group.

        When this returns it has been sent. An ended process takes no notice.
        """
        self.answered.clear()
        self.keeper.order(do="signal", id=self.number, number=int(number), group=group)
        self.keeper.await_answer(self, f"was not sent signal {number}")

    def terminate(self) -> None:
        """Ask it to end: SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self, *, group: bool = True) -> None:
        """End it and its group by SIGKILL, and wait until it is gone."""
        self.send_signal(signal.SIGKILL, group=group)
        self.wait(10)

    def pause(self) -> None:
        """Freeze it and its group by SIGSTOP, and wait until it stands still."""
        self.send_signal(signal.SIGSTOP, group=True)
        deadline = time.monotonic() + 5
        while proc_stat(self.pid)[:1] in (["R"], ["S"], ["D"]):
            if time.monotonic() > deadline:
                raise self.failure("does not stop")
            time.sleep(0.002)

    def resume(self) -> None:
        """Let it go on: SIGCONT."""
        self.send_signal(signal.SIGCONT, group=True)

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end, at most `timeout` seconds.

        Returns:
            The exit code; negative: the signal that ended it.

        Raises:
            ProcessFailed: it still runs; the message shows the end of its output.
        """
        if not self.ended.wait(timeout):
            raise self.failure(f"still runs after {timeout:g} s")
        assert self.returncode is not None
        return self.returncode

    def output(self) -> str:
        """Everything it has written to stdout and stderr so far."""
        return self.output_path.read_text(errors="replace") if self.output_path.exists() else ""

    def wait_for_output(self, text: str, timeout: float = 30) -> str:
        """Wait until `text` appears in its output; returns the output.

        Raises:
            ProcessFailed: it ended first, or `timeout` seconds passed.
        """
        deadline = time.monotonic() + timeout
        while text not in (output := self.output()):
            if self.returncode is not None:
                raise self.failure(f"ended with {self.returncode} before it wrote {text!r}")
            if time.monotonic() > deadline:
                raise self.failure(f"did not write {text!r} within {timeout:g} s")
            time.sleep(0.02)
        return output

    def failure(self, what: str) -> ProcessFailed:
        """Make the error that says what went wrong with this process and shows the end of its output."""
        tail = self.output()[-TAIL:].strip() or "(nothing)"
        return ProcessFailed(f"{self.name} (pid {self.pid}) {what}. The end of its output:\n{tail}")


def proc_stat(pid: int) -> list[str]:
    """State, parent and so on, as in /proc/<pid>/stat; empty if it is gone, and elsewhere than on Linux."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()  # its name may hold anything
    except OSError:
        return []


class Keeper:
    """Our end of one keeper process.

    Args:
        directory: removed with everything in it at the end, ours or its.
    """

    def __init__(self, directory: Path | None = None) -> None:
        command = [sys.executable, "-I", "-S", str(KEEPER), *([str(directory)] if directory else [])]
        self._keeper = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            text=True,
        )
        self.processes: list[Process] = []
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read_answers, name="keeper", daemon=True)
        self._reader.start()
        _keepers.add(self)

    def start(
        self,
        argv: Sequence[str | Path],
        *,
        output: Path,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        account: Account | None = None,
        end_signal: int = signal.SIGTERM,
    ) -> Process:
        """Start a child process in a session of its own.

        Args:
            argv: program and arguments.
            output: file that stdout and stderr are appended to.
            name: what messages call it; default: the program's name.
            env: its whole environment; default: ours.
            cwd: its working directory; default: ours.
            account: the user it runs as; needs us to be root.
            end_signal: what asks it to end when we do, 5 seconds before SIGKILL.

        Raises:
            ProcessFailed: it could not be started.
        """
        words = [str(word) for word in argv]
        with self._lock:
            process = Process(
                name=name or Path(words[0]).name,
                argv=words,
                output_path=output,
                keeper=self,
                number=len(self.processes),
            )
            self.processes.append(process)
        self.order(
            do="start",
            id=process.number,
            argv=words,
            cwd=str(cwd or Path.cwd()),
            env=dict(os.environ if env is None else env),
            output=str(output),
            user=account.uid if account else None,
            group=account.gid if account else None,
            end_signal=int(end_signal),
        )
        self.await_answer(process, "was not started")
        if process.error is not None:
            raise ProcessFailed(f"{process.name} could not be started: {process.error}. Command: {words}")
        return process

    @property
    def pid(self) -> int:
        """Process id of the keeper itself."""
        return self._keeper.pid

    def order(self, **fields: object) -> None:
        """Send one order.

        Raises:
            ProcessFailed: the keeper is gone, and with it every process it kept.
        """
        line = json.dumps(fields) + "\n"
        stdin = self._pipe()
        try:
            with self._lock:
                stdin.write(line)
                stdin.flush()
        except (OSError, ValueError) as error:
            raise self._gone() from error

    def await_answer(self, process: Process, complaint: str) -> None:
        """Wait for the answer to the order that was sent last for this process.

        Raises:
            ProcessFailed: the keeper is gone, or took longer than 30 seconds.
        """
        deadline = time.monotonic() + 30
        while not process.answered.wait(0.1):
            if not self._reader.is_alive():
                raise self._gone()
            if time.monotonic() > deadline:
                raise process.failure(f"{complaint} within 30 s")

    def close(self) -> None:
        """End every process, remove the directory. Safe to call twice."""
        with contextlib.suppress(OSError):  # it may be gone already
            self._pipe().close()
        self._keeper.wait(30)
        self._reader.join(5)
        if self._keeper.stdout:
            self._keeper.stdout.close()

    def _gone(self) -> ProcessFailed:
        return ProcessFailed(f"The keeper (pid {self.pid}) is gone, and its processes with it")

    def let_go(self) -> None:
        """Close our end of the pipe in a process that only inherited it."""
        with contextlib.suppress(OSError):
            self._pipe().close()

    def _pipe(self) -> IO[str]:
        assert self._keeper.stdin is not None
        return self._keeper.stdin

    def _read_answers(self) -> None:
        assert self._keeper.stdout is not None
        for line in self._keeper.stdout:
            fields = json.loads(line)
            process = self.processes[fields["id"]]
            if "exit" in fields:
                process.returncode = fields["exit"]
                process.ended.set()
            else:
                process.pid = fields.get("pid", process.pid)
                process.error = fields.get("error")
                process.answered.set()
        for process in self.processes:  # it was killed, and the kernel ended its children
            if process.returncode is None:
                process.returncode = -signal.SIGKILL
                process.ended.set()


_keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()


def _forget_keepers() -> None:
    """In a forked child: let go of the pipes, or the keepers would take it for us."""
    for keeper in _keepers:
        keeper.let_go()


os.register_at_fork(after_in_child=_forget_keepers)
