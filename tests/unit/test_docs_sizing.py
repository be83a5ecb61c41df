"""The tables of docs/sizing.md are what its figures give, and its figures are what the bench prints."""

from __future__ import annotations

import re
from math import ceil

from tests.benchmarks.comparisons import COMPARISONS
from tests.benchmarks.sizing import PAGE, Figures, bodies, rows


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


def test_bodies_at_once() -> None:
    """As the page says of a thousand sagas of three steps of 50 ms."""
    assert bodies(1000, 3, 0.05) == 150
    assert ceil(150 / 8) == 19
    assert "150 bodies at once: 19 workers" in PAGE.read_text()
