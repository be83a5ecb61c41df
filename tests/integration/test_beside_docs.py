"""The page about steps side by side does what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from django.db import transaction

from tests.support.stories import drain, log_of

PAGE = Path(__file__).parents[2] / "docs" / "side-by-side.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.usefixtures("shop")


def test_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its saga completes, and paid for both."""
    module = ModuleType("docs_side_by_side")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in BLOCK.findall(PAGE.read_text()):
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), module.__dict__)
    saga, trip = module.__dict__["BookTrip"], module.__dict__["Trip"]
    with transaction.atomic():
        run = saga.start(trip(1), key="trip-1")
    drain()
    assert saga.get(key="trip-1").status == "completed", log_of(run)
