"""The page about children and fan-out does what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from django.db import transaction

from tests.support.stories import drain, log_of

PAGE = Path(__file__).parents[2] / "docs" / "children-and-fan-out.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.usefixtures("shop")


def test_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sagas complete."""
    module = ModuleType("docs_children")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in BLOCK.findall(PAGE.read_text()):
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), module.__dict__)
    order = module.__dict__["Order"](7, ["a", "?", "bc"])
    for name in ("Buy", "Invite", "Survey"):
        saga = module.__dict__[name]
        with transaction.atomic():
            run = saga.start(order, key="one")
        drain()
        assert saga.get(key="one").status == "completed", log_of(run)
    assert module.__dict__["Survey"].ask.result_of(key="one") == ["A", None, "BC"], "the page says which has failed"
