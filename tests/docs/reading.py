"""The code blocks of the documentation, and which test runs them. A new page is found by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
)
FENCE: Final = re.compile(r"^(?P<fence>```+)(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
FILE: Final = re.compile(r"# (?P<name>[\w./-]+\.py)\n")  # the first line of a block that is a file

# Pages whose Python blocks a test of their own runs; that test names the page. With `files` it runs only those blocks
# that are files, and the others are run here like those of any other page.
ALL: Final = "all"
FILES: Final = "files"
OWN_TEST: Final[Mapping[str, tuple[str, str]]] = {
    "README.md": ("tests/docs/test_readme.py", ALL),
    "async.md": ("tests/kit/test_async.py", ALL),
    "children-and-fan-out.md": ("tests/integration/test_children_docs.py", ALL),
    "conformance.md": ("tests/conformance/test_docs.py", FILES),
    "django.md": ("tests/packaging/test_startproject.py", FILES),
    "isolation.md": ("tests/integration/test_isolation_docs.py", ALL),
    "metrics.md": ("tests/integration/test_metrics.py", ALL),
    "schedules.md": ("tests/integration/test_schedules_docs.py", ALL),
    "explore.md": ("tests/explore/test_docs_explore.py", ALL),
    "fastapi.md": ("tests/integration/test_fastapi_docs.py", FILES),
    "drop-in.md": ("tests/messages/test_docs.py", ALL),
    "messages.md": ("tests/messages/test_docs.py", ALL),
    "mistakes.md": ("tests/docs/test_mistakes.py", ALL),
    "payloads.md": ("tests/integration/test_payloads_docs.py", ALL),
    "side-by-side.md": ("tests/integration/test_beside_docs.py", ALL),
    "sql-api.md": ("tests/integration/test_bare_sql.py", ALL),
    "sqlalchemy.md": ("tests/sqlalchemy/test_docs.py", FILES),
    "testing.md": ("tests/kit/test_docs.py", FILES),
    "tutorial-django.md": ("tests/docs/test_tutorials.py", FILES),
    "tutorial-fastapi.md": ("tests/docs/test_tutorials.py", FILES),
    "waits-and-signals.md": ("tests/integration/test_waits_docs.py", ALL),
}


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block."""

    page: Path
    line: int  # of its first line of code
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str | None:
        """Which file of the reader's project it is, if it says so in its first line."""
        found = FILE.match(self.text)
        return found["name"] if found else None


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(
            page=page, line=text[: found.start("text")].count("\n") + 1, language=found["language"].strip(),
            text=found["text"],
        )
        for found in FENCE.finditer(text)
    ]  # fmt: skip


def to_run(page: Path) -> list[Block]:
    """The Python blocks of a page that no test of its own runs."""
    _, what = OWN_TEST.get(page.name, ("", ""))
    python = [block for block in blocks(page) if block.language == "python"]
    return [block for block in python if what == "" or (what == FILES and block.file is None)]
