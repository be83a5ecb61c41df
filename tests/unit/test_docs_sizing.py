"""The tables of docs/sizing.md are what its figures give, and its figures are what the bench prints."""

from __future__ import annotations

import json
import re
from math import ceil
from pathlib import Path

import pytest

from tests.benchmarks.comparisons import COMPARISONS
from tests.benchmarks.report import Measurement
from tests.benchmarks.sizing import KEYS, PAGE, Figures, Missing, bodies, rows


def test_the_table_is_computed_from_the_figures_of_the_page() -> None:
    """Whoever changes a figure has to compute it anew: `python -m tests.benchmarks.sizing`."""
    text = PAGE.read_text()
    assert [row for row in rows(Figures.of_page(text)) if row not in text] == []


def test_each_figure_names_the_comparison_that_prints_it() -> None:
    """No number is quoted that the bench does not print."""
    keys = {one.key: one for one in COMPARISONS}
    stated = re.findall(r"\| [\d,.]+ \| `((?:ours|limit)\.\w+)` \| `([\w-]+)` \|", PAGE.read_text())
    assert len(stated) == 9
    for name, key in stated:
        assert name in (keys[key].ours, keys[key].peer)


def bench_json(folder: Path, *missing: str) -> Path:
    """What a run of the bench left behind, without some of its measurements."""
    names = [name for one in COMPARISONS if one.key in KEYS for name in (one.ours, one.peer)]
    measured = [Measurement(name=name, count=10, seconds=2).as_dict() for name in names if name not in missing]
    path = folder / "bench.json"
    path.write_text(json.dumps({"rounds": [measured, measured]}))
    return path


def test_the_table_is_computed_from_a_run_of_the_bench(tmp_path: Path) -> None:
    """Rates as rates, sizes as sizes; and the comparisons that it names measure all that it needs."""
    figures = Figures.of_bench(bench_json(tmp_path))
    assert (figures.embedded, figures.bare_sql, figures.memory_relay) == (5, 5, 2)
    assert len(rows(figures)) == 3


def test_what_a_run_lacks_is_named(tmp_path: Path) -> None:
    """With the command that measures it; and a file that is something else is called so."""
    with pytest.raises(Missing, match=r"lacks celery, memory_relay: .*full embedded celery limit memory-embedded"):
        Figures.of_bench(bench_json(tmp_path, "ours.celery", "ours.memory_relay"))
    for text in ("{}", "[]", "no JSON"):
        (tmp_path / "other.json").write_text(text)
        with pytest.raises(Missing, match="is no result of `make bench`"):
            Figures.of_bench(tmp_path / "other.json")
    with pytest.raises(Missing, match="FileNotFoundError"):
        Figures.of_bench(tmp_path / "none.json")


def test_bodies_at_once() -> None:
    """As the page says of a thousand sagas of three steps of 50 ms."""
    assert bodies(1000, 3, 0.05) == 150
    assert ceil(150 / 8) == 19
    assert "150 bodies at once: 19 workers" in PAGE.read_text()
