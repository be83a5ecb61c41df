"""The fault points' own grammar and manners; everything else here relies on them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from sagas.points import Point
from sagas.testing.faults import Fault, FaultError, environment, resume, wait_for_hit
from sagas.testing.processes import Process, ProcessFailed, ProcessGroup
from tests.faults.scene import ROOT

PROGRAM = """
from sagas.points import Point, reached
from sagas.testing.faults import install_from_environment
install_from_environment()
for number in range(3):
    reached(Point.AFTER_BODY, "charge:do,charge:undo")
    print("round", number, flush=True)
"""


def run(processes: ProcessGroup, marker: Path, *faults: str) -> Process:
    return processes.python("-c", PROGRAM, name="program", env=environment(marker, *faults), cwd=ROOT)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("worker.after_body:pause", Fault(point=Point.AFTER_BODY)),
        ("worker.after_body@charge:do:kill", Fault(point=Point.AFTER_BODY, work="charge:do", kills=True)),
        ("relay.after_claim#3:pause", Fault(point=Point.AFTER_CLAIM, hit=3)),
        ("worker.before_body@a:undo#2:kill", Fault(point=Point.BEFORE_BODY, work="a:undo", hit=2, kills=True)),
    ],
)
def test_grammar(text: str, fault: Fault) -> None:
    """What is written is what is meant, and is written back so."""
    assert Fault.parse(text) == fault == Fault.parse(str(fault))


@pytest.mark.parametrize("text", ["", "worker.after_body", "worker.nowhere:pause", "worker.after_body:explode"])
def test_mistakes(text: str) -> None:
    """A fault that cannot strike is an error, not a test that proves nothing."""
    with pytest.raises(FaultError):
        Fault.parse(text)


def test_pause(process_group: ProcessGroup, tmp_path: Path) -> None:
    """The process stands at the n-th hit of its work until it may go on, and strikes once."""
    program = run(process_group, tmp_path / "marker", "worker.after_body@charge:undo#2:pause")
    hit = wait_for_hit(tmp_path / "marker", program)
    assert (hit.point, hit.pid) == (Point.AFTER_BODY, program.pid)
    assert program.output().split("\n") == ["round 0", ""]
    resume(tmp_path / "marker")
    assert program.wait(10) == 0
    assert "round 2" in program.output()


def test_death(process_group: ProcessGroup, tmp_path: Path) -> None:
    """The process dies at the point, with its mark left."""
    program = run(process_group, tmp_path / "marker", "worker.after_body@nothing:kill", "worker.after_body#3:kill")
    assert wait_for_hit(tmp_path / "marker", program, number=1).pid == program.pid
    assert program.wait(10) == -signal.SIGKILL
    assert "round 2" not in program.output()


def test_point_that_is_never_reached(process_group: ProcessGroup, tmp_path: Path) -> None:
    """Waiting for a point that is not hit fails."""
    program = run(process_group, tmp_path / "marker", "worker.after_body@ship:do:pause")
    with pytest.raises(ProcessFailed, match="before it reached the point"):
        wait_for_hit(tmp_path / "marker", program)
