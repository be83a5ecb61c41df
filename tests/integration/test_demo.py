"""`make demo`, smaller: it shows what it promises, and leaves nothing behind when it is interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sagas.testing.keeping import proc_stat

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 120.0  # seconds; on a machine of its own it takes less than 20

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")]


class Demo:
    """A demo under way, in a process group of its own like a command in a terminal."""

    def __init__(self, output: Path, *options: str, module: str = "example_project.demo", **env: str) -> None:
        self._output = output
        own_servers = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *options],
                cwd=ROOT,
                env=own_servers | env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + LONGEST
        while text not in self.output:
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.02)

    def family(self) -> set[tuple[int, str]]:
        """Every descendant: its id, and the time it started, since ids are used again."""
        alive = {int(entry.name): proc_stat(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")}
        found, parents = set(), {self.process.pid}
        while parents:
            children = {pid for pid, stat in alive.items() if stat and int(stat[1]) in parents}
            found |= {(pid, alive[pid][19]) for pid in children}
            parents = children
        return found


def still_there(family: set[tuple[int, str]]) -> list[str]:
    """Those of them that run on; a dead one that nobody has reaped yet does not run."""
    left = []
    for pid, started in sorted(family):
        stat = proc_stat(pid)
        if stat and stat[19] == started and stat[0] != "Z":
            left.append(f"{pid}: {Path(f'/proc/{pid}/cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
    return left


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "demo.txt"


def test_every_fault_hits_and_every_promise_is_kept(output: Path) -> None:
    """Exit code 0, and a summary in which shop, bank and saga logs agree."""
    demo = Demo(output, "--orders", "60")
    demo.wait_for("HIT  a worker was killed")
    family = demo.family()
    assert demo.process.wait(LONGEST) == 0, demo.output
    said = demo.output
    for line in (
        r"ok  sagas +60, ended as planned: yes",
        r"ok  parked +0\n",
        r"    throughput +[0-9.]+ sagas/s",
        r"ok  duplicate charges +0\n",
        r"ok  repeated keys the bank saw +[1-9]",
        r"ok  shop and bank ledger equal to the cent +yes",
        r"ok  saga logs +60 sagas verified, 0 problems",
        r"ok  recovered after the relay was killed +([1-9][0-9]*) of \1 deliveries",
        r"ok  recovered after Redis was wiped +([1-9][0-9]+) of \1 deliveries",
        r"ok  recovered after a worker was killed +([1-9][0-9]*) of \1 deliveries",
        r"shortened +SAGAS\['LEASE'\] = 3.0 s \(shop: 30.0 s\)",
    ):
        assert re.search(line, said), f"{line}\n{said}"
    assert still_there(family) == []


@pytest.mark.full
def test_ctrl_c_leaves_nothing_behind(output: Path) -> None:
    """The terminal interrupts the whole group while relay, workers, bank and servers run: all of them end."""
    demo = Demo(output, "--orders", "60")
    demo.wait_for("HIT  Redis was wiped")
    family = demo.family()
    assert len(family) > 10, demo.output
    os.killpg(demo.process.pid, signal.SIGINT)
    assert demo.process.wait(30) == 130, demo.output
    assert "Traceback" not in demo.output
    assert still_there(family) == []
