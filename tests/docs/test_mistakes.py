"""docs/mistakes.md: each mistake is made, and the message is the one on the page."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest

from tests.docs.given import mistakes as given
from tests.docs.reader import agrees
from tests.docs.reading import ROOT

PAGE = ROOT / "docs" / "mistakes.md"
SECTION = re.compile(r"^## (?P<title>.+?)$(?P<body>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
MADE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOUND = {section["title"]: MADE.findall(section["body"]) for section in SECTION.finditer(PAGE.read_text())}


@pytest.mark.parametrize("title", [title for title, made in FOUND.items() if made])
def test_the_message_names_the_remedy(title: str, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is shown under the mistake."""
    [(code, said)] = FOUND[title]
    module = ModuleType("docs_mistakes")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = {name: getattr(given, name) for name in given.__all__}
    module.__dict__.update(names)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the message is compared below
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), module.__dict__)
    told = f"{type(caught.value).__name__}: {caught.value}"
    assert agrees(told, said), told


def test_at_least_ten() -> None:
    """And every block of the page is one of them."""
    text = PAGE.read_text()
    assert text.count("```python") == sum(len(made) for made in FOUND.values()) >= 10
