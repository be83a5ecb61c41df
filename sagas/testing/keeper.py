"""A small process that starts others and sees to it that none of them outlives its owner.

The owner (see `sagas.testing.keeping.Keeper`) runs this file as a script and writes one JSON
order a line to its stdin. End of file means that the owner is gone, however it went: Ctrl-C,
SIGTERM, kill -9. Then everything is ended, descendants too, and the given directory removed.
The kernel ends the children should the keeper itself be killed (Linux only).

Runs with `python -I -S`: standard library only, nothing of this package is imported.

Orders:  {"do": "start", "id": 1, "argv": [...], "cwd": ..., "env": {...}, "output": path,
          "user": uid or null, "group": gid or null, "end_signal": n}
         {"do": "signal", "id": 1, "number": 15, "group": true}
Answers: {"id": 1, "pid": 4711}, {"id": 1, "error": "..."}, {"id": 1, "signalled": 15}, {"id": 1, "exit": -9}
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GRACE = 5.0  # seconds between the end signal and SIGKILL

_answers = threading.Lock()


def answer(**fields: Any) -> None:
    """Write one answer line; an owner that is gone does not hear it."""
    with _answers, contextlib.suppress(OSError):
        os.write(1, json.dumps(fields).encode() + b"\n")


def dies_with_keeper(number: int) -> Callable[[], None] | None:
    """Make the function that ties a new child to this process: run in the child, after its user id was dropped."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    keeper = os.getpid()

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != keeper:  # it died before the tie was made
            os._exit(1)

    return tie


def adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs, so that none gets away (Linux only)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_adopted(deadline: float) -> None:
    """End and reap whatever was adopted, and what that leaves in turn."""
    while time.monotonic() < deadline:
        for task in Path("/proc/self/task").glob("*/children"):
            for pid in map(int, task.read_text().split()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


class Children:
    """The processes started so far, by the number the owner gave them."""

    def __init__(self) -> None:
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.end_signals: dict[int, int] = {}
        self.empty: set[int] = set()  # ended with its whole group: the group's id may be another's by now

    def start(self, order: dict[str, Any]) -> None:
        """Start one process in a session of its own and watch for its end."""
        number = order["id"]
        identity = {}
        if order["user"] is not None:
            identity = {"user": order["user"], "group": order["group"], "extra_groups": []}
        try:
            with open(order["output"], "ab") as output:
                child = subprocess.Popen(
                    order["argv"],
                    cwd=order["cwd"],
                    env=order["env"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C in the terminal is not for them
                    preexec_fn=dies_with_keeper(order["end_signal"]),
                    **identity,
                )
        except (OSError, subprocess.SubprocessError) as error:
            answer(id=number, error=f"{type(error).__name__}: {error}")
            return
        self.running[number] = child
        self.end_signals[number] = order["end_signal"]
        answer(id=number, pid=child.pid)
        threading.Thread(target=self._report_end, args=(number, child), daemon=True).start()

    def signal(self, order: dict[str, Any]) -> None:
        """Send a signal to one process, or to its whole group."""
        self._send(order["id"], order["number"], group=order["group"])
        answer(id=order["id"], signalled=order["number"])

    def end_all(self) -> None:
        """End every process and whatever is left of its group."""
        for number in self.running:
            self._send(number, self.end_signals[number], group=False)
            self._send(number, signal.SIGCONT, group=True)  # a stopped process does not hear
        deadline = time.monotonic() + GRACE
        for child in self.running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, deadline - time.monotonic()))
        for number, child in self.running.items():
            self._send(number, signal.SIGKILL, group=True)
            self._send(number, signal.SIGKILL, group=False)
            answer(id=number, exit=child.wait())  # the thread that would say so may not get to it
        end_adopted(time.monotonic() + GRACE)

    def _send(self, number: int, what: int, *, group: bool) -> None:
        child = self.running[number]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not group:
                child.send_signal(what)
            elif number not in self.empty:
                os.killpg(child.pid, what)

    def _report_end(self, number: int, child: subprocess.Popen[bytes]) -> None:
        code = child.wait()
        try:
            os.killpg(child.pid, 0)
        except ProcessLookupError:
            self.empty.add(number)
        except PermissionError:
            pass
        answer(id=number, exit=code)


def main() -> None:
    """Obey orders until the owner is gone, then end everything."""
    for unheeded in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the owner's end is the only reason to end
        signal.signal(unheeded, lambda *_: None)  # SIG_IGN would be inherited by the children
    adopt_orphans()
    children = Children()
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "start":
            children.start(order)
        else:
            children.signal(order)
    children.end_all()
    if len(sys.argv) > 1:
        shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
