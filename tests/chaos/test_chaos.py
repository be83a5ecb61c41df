"""Everything at once, for a short while; `make chaos` is the long run, and docs/chaos.md says how to read one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sagas.testing.processes import Process, ProcessGroup
from tests.chaos.mutants import KILLED_BY

ROOT = Path(__file__).parents[2]
SEED = os.environ.get("CHAOS_SEED", "20261130")
TEETH_SEED = "11"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NOT RUN: finds pool children in /proc"),
]


def play(processes: ProcessGroup, *options: str) -> tuple[int, str]:
    """One run in a process of its own, whose sagas and settings are no other test's; its exit code and report."""
    run: Process = processes.python("-m", "tests.chaos", *options, name="chaos", cwd=ROOT)
    code = run.wait(400)
    return code, run.output()


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    """The short run."""
    with ProcessGroup(tmp_path_factory.mktemp("chaos")) as processes:
        return play(processes, "--short", "--seed", SEED)


def test_nothing_is_lost_and_nothing_happens_twice(short: tuple[int, str]) -> None:
    """Under every fault of the list all sagas come to an end, and the books of shop and bank agree to the cent."""
    code, report = short
    assert code == 0, report
    assert "all is well" in report


def test_through_pgbouncer(short: tuple[int, str]) -> None:
    """The same with one worker behind pgbouncer in transaction mode."""
    code, report = short
    if "NOT RUN: pgbouncer" in report:
        pytest.skip("NOT RUN: pgbouncer is not installed")
    assert code == 0, report


@pytest.mark.full
@pytest.mark.parametrize("mutant", sorted(KILLED_BY))
def test_has_teeth(mutant: str, process_group: ProcessGroup) -> None:
    """A rule that is taken out of the engine is missed."""
    code, report = play(process_group, "--minutes", "0.5", "--seed", TEETH_SEED, "--mutant", mutant)
    assert code == 1, f"nobody misses the rule; {KILLED_BY[mutant]!r} was to be seen\n{report}"
