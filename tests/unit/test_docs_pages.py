"""The pages hang together: links lead somewhere, named tests and files exist, and drawn pages are up to date."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *sorted(DOCS.glob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
]
LIBRARY = ("sagas", "outbox/sagas_outbox", "integrations")

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)+\.(?:py|sql|md)")
NAMED_IN = re.compile(r"(`[\w.]+`(?:(?:, |,? and | or )`[\w.]+`)*) in `([\w/]+\.(?:py|sql))`")
MODULE = re.compile(r"^\| `([\w/]+\.py)` \| .+ \|$", re.MULTILINE)


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings."""
    texts = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(prose(page)))
    return {text.strip().replace(" ", "-") for text in texts}


@lru_cache
def functions(path: Path) -> frozenset[str]:
    """Names of the functions at the top of a module, read without importing it."""
    return frozenset(node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """To a file of the project, and where they name a heading to one that is there."""
    broken = []
    for target in LINK.findall(prose(page)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        place = page.parent / name if name else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    """A path in backquotes is one from the root of the project."""
    named = (found for code in CODE.findall(prose(page)) if (found := FILE.fullmatch(code.partition("::")[0])))
    # `mysite/` and `shop/` are the reader's own
    missing = {name[0] for name in named if (ROOT / name[0].split("/")[0]).exists() and not (ROOT / name[0]).exists()}
    assert not missing


def test_named_statements_exist() -> None:
    """`begin.sql` and the like, also in code blocks: each is a file of the library."""
    named = {name for page in PAGES for name in re.findall(r"(?<![\w/])\w+\.sql\b", page.read_text())}
    there = {path.name for folder in LIBRARY for path in (ROOT / folder).rglob("*.sql")}
    assert named and not named - there


def test_named_things_are_in_the_file_that_is_named() -> None:
    """`receive` and `Draft.decision` in `sagas/some/module.py`: each is made there, a method by its own name."""
    named = [
        (page.name, name.rpartition(".")[2], path)
        for page in PAGES
        for names, path in NAMED_IN.findall(" ".join(prose(page).split()))
        for name in CODE.findall(names)
        if (ROOT / path).is_file()  # another test misses it otherwise
    ]
    assert len(named) > 20
    assert [each for each in named if each[1] not in made(ROOT / each[2])] == []


@lru_cache
def made(path: Path) -> frozenset[str]:
    """Names of whatever a file defines or assigns to; all words of a statement."""
    if path.suffix == ".sql":
        return frozenset(re.findall(r"\w+", path.read_text()))
    nodes = list(ast.walk(ast.parse(path.read_text())))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return frozenset(stored | {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_tests_exist(page: Path) -> None:
    """A promise is held by a test that can be run."""
    missing = [
        f"{path}::{name}"
        for path, name in TEST.findall(page.read_text())
        if not (ROOT / path).is_file() or name not in functions(ROOT / path)
    ]
    assert not missing


def test_every_promise_names_a_test() -> None:
    """Each promise has a sentence, a mechanism, tests and limits."""
    page = (DOCS / "guarantees.md").read_text()
    promises = re.split(r"^### ", page.partition("## What the other side")[0], flags=re.MULTILINE)[1:]
    assert len(promises) == 23
    for promise in promises:
        assert re.search(r"^\*\*[^*]+[.]\*\*", promise, re.MULTILINE), promise
        assert "- Keeps it: " in promise and "- Held by: " in promise and "- Limits: " in promise, promise
        assert TEST.search(promise), promise


def test_every_page_is_in_the_index() -> None:
    """Once, and the README leads to the index."""
    listed = Counter(Path(target).name for target in LINK.findall((DOCS / "index.md").read_text()))
    assert listed == Counter(page.name for page in PAGES if page.name != "index.md")
    assert "docs/index.md" in LINK.findall((ROOT / "README.md").read_text())


def test_every_module_is_on_the_map() -> None:
    """Each module of the library has its line in the architecture page, and no other has one."""
    found = {path for folder in LIBRARY for path in (ROOT / folder).rglob("*.py")}
    modules = {str(path.relative_to(ROOT)) for path in found if path.name != "__init__.py"}
    modules = {name for name in modules if "/migrations/" not in name}
    assert Counter(MODULE.findall((DOCS / "architecture.md").read_text())) == Counter(modules)


def test_the_machine_is_drawn_from_its_table() -> None:
    """`.venv/bin/python docs/draw_machine.py` draws it anew."""
    drawn = draw_machine()
    assert (DOCS / "machine.md").read_text() == drawn.page()
    assert (DOCS / "machine.svg").read_text() == drawn.picture()


def draw_machine() -> ModuleType:
    """The script as a module; docs is no package."""
    spec = importlib.util.spec_from_file_location("draw_machine", DOCS / "draw_machine.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_table_is_described() -> None:
    """docs/sql-schema.md has a line for each table that the schema makes."""
    files = (ROOT / "sagas" / "store" / "schema").glob("*.sql")
    made = {name for path in files for name in re.findall(r"^create table (\w+)", path.read_text(), re.MULTILINE)}
    named = set(re.findall(r"`(sagas_\w+)`", (DOCS / "sql-schema.md").read_text()))
    assert made - named == set()
