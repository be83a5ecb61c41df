"""`make bench-growth` works from end to end, within the time that it is given."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.full


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    """Run it."""
    command = [sys.executable, "-m", "tests.benchmarks.growth", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


def test_every_curve_is_measured(tmp_path: Path) -> None:
    """With a thousandth of the sagas; whether floors hold says nothing with so few."""
    ran = bench("--size", "1000", "--rounds", "1", "--limit", "500", "--result", str(tmp_path / "found.json"))
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert {curve: len(points) for curve, points in found["found"].items()} == {
        "finished": 4, "due": 3, "open": 3, "queues": 3
    }  # fmt: skip
    for points in found["found"].values():
        for (measured,) in points.values():
            assert measured["per_second"] > 0
            assert set(measured["p99"]) == {"start", "claim", "begin", "record"}
    assert set(found["workers"]) == {"1", "2", "4"}
    assert "</svg>" in (tmp_path / "found.svg").read_text()


def test_it_ends_in_time_and_says_what_was_not_measured(tmp_path: Path) -> None:
    """Nothing is made up for what there was no time for."""
    ran = bench("--size", "1000", "--rounds", "1", "--limit", "0.001", "--result", str(tmp_path / "found.json"), "due")
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert "NOT RUN: " in ran.stdout
