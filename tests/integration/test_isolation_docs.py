"""The page about isolation does what it says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from tests.support.stories import drain

PAGE = Path(__file__).parents[2] / "docs" / "isolation.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LABEL = "docs_isolation"


@pytest.fixture
def page(shop: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the page defines, with a table for its model as long as the test lasts."""
    module = ModuleType(LABEL)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    model: Any = None
    try:
        for block in BLOCK.findall(PAGE.read_text()):
            exec(compile(block, str(PAGE), "exec", dont_inherit=True), module.__dict__)
            if model is None:
                model = module.__dict__["Account"]
                with connection.schema_editor() as editor:
                    editor.create_model(model)
            drain()
        yield module.__dict__
    finally:
        if model is not None:
            with connection.schema_editor() as editor:
                editor.delete_model(model)
        del apps.all_models[LABEL]
        apps.clear_cache()


def test_the_page_runs(page: dict[str, Any]) -> None:
    """Every block, in order, workers in between, and the balances are what each pattern promises."""

    def status(saga: str, key: str) -> str:
        return str(page[saga].get(key=key).status)

    assert status("CloseAccount", "close-7") == "completed"
    assert status("Rename", "rename-1") == "completed"
    assert status("Rename", "rename-2") == "compensated"
    assert status("Pay", "small") == status("PayMuch", "large") == "completed"
    accounts = {each.number: (each.balance, each.status) for each in page["Account"].objects.all()}
    assert accounts == {7: (0, "closed"), 8: (85, "renamed"), 9: (2980, "open")}
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from sagas_lock")
        assert cursor.fetchone() == (0,)
