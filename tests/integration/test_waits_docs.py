"""The page about waits and signals does what it says."""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sagas.testing.moving import Clock
from tests.support.stories import drain, entries, log_of

PAGE = Path(__file__).parents[2] / "docs" / "waits-and-signals.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_runs(time_machine: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block, in order, workers in between; all sagas of the page complete."""
    module = ModuleType("docs_waits_and_signals")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in BLOCK.findall(PAGE.read_text()):
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), module.__dict__)
        drain()
    time_machine.advance(timedelta(hours=2))
    drain()
    order: Any = module.__dict__["PlaceOrder"]
    for number in (7, 8, 9):
        found = order.get(key=f"order-{number}")
        assert found.status == "completed", (number, log_of(found))
    ships = [entry for entry in entries(order.get(key="order-7").id) if entry.step == "ship"]
    assert ships[0].data["result"] == "shipped, looks fine, wrapped: skipped"
    assert module.__dict__["ImportCatalogue"].get(key="catalogue").status == "completed"
