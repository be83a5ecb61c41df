"""The page about schedules does what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sagas.schedules.declaration import schedules
from sagas_django.models import SagaRow, ScheduleRow
from tests.support.stories import drain

PAGE = Path(__file__).parents[2] / "docs" / "schedules.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_runs(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block, in order; the saga that is started by hand completes."""
    module = ModuleType("docs_schedules")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    before = {each.name for each in schedules.all()}
    try:
        for block in BLOCK.findall(PAGE.read_text()):
            exec(compile(block, str(PAGE), "exec", dont_inherit=True), module.__dict__)
        drain()
        given: dict[str, Any] = module.__dict__
        saga = SagaRow.objects.get(pk=given["id"])
        assert (saga.key, saga.status) == (given["key"], "completed")
        assert saga.headers == {"schedule": "docs.place_report", "reason": "needed now", "actor": "ann"}
        row = ScheduleRow.objects.get()
        assert (row.name, row.timing, row.timezone, row.paused) == (
            "docs.place_report", "0 6 * * *", "Europe/Berlin", False,
        )  # fmt: skip
    finally:
        for each in schedules.all():
            if each.name not in before:
                schedules.discard(each.name)
