"""docs/explore.md: what its code does is what the page says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy.orm import Session

from sagas.testing import ExplorationFailed
from sagas.testing.explorer.faults import Kind
from tests.explore.test_sqlalchemy import engine, make_engine, make_runtime, runtime, session, shop_template, url
from tests.sqlalchemy.shop import Order

__all__ = ["engine", "make_engine", "make_runtime", "runtime", "session", "shop_template", "url"]

PAGE = Path(__file__).parents[2] / "docs" / "explore.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    """The code of the page as a module."""
    module = ModuleType("explore_page")
    sys.modules[module.__name__] = module
    code = "\n".join(text for language, text in BLOCK.findall(PAGE.read_text()) if language == "python")
    exec(compile("from __future__ import annotations\n" + code, str(PAGE), "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]


def test_the_bug_is_told_as_on_the_page(page: Any) -> None:
    """Line by line."""
    [told] = [text for language, text in BLOCK.findall(PAGE.read_text()) if language == "text"]
    for test in (page.test_buy_lamp, page.test_that_story):
        with pytest.raises(ExplorationFailed) as caught:
            test()
        assert told in str(caught.value)


def test_mended(page: Any) -> None:
    """Nothing to report."""
    page.test_mended()


def test_what_it_gives_back(page: Any) -> None:
    """Without raising."""
    page.test_look_at_it()


@pytest.mark.full
def test_in_a_session(page: Any, session: Session) -> None:
    """With SQLAlchemy; `Order` is a model of the reader's."""
    page.Order = Order
    page.test_in_a_session(session)


def test_every_fault_is_on_the_page() -> None:
    """In the table of faults."""
    text = PAGE.read_text()
    assert not [kind for kind in Kind if kind.value not in text]
