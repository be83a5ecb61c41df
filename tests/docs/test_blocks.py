"""Every code block of every page is run, parsed by the program it is for, or run by a test that is named here.

A new page needs nothing: its Python runs in order in one module, against a real database, with workers in between;
what it takes for granted goes into `tests/docs/given`. A language that nobody here knows is an error.
"""

from __future__ import annotations

import ast
import configparser
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
import yaml
from django.db import connection, transaction

from tests.docs.commands import problems
from tests.docs.reading import OWN_TEST, PAGES, ROOT, Block, blocks, to_run
from tests.support.stories import drain

PYTHON: Final = [page for page in PAGES if to_run(page)]
SQL: Final = [
    block for page in PAGES for block in blocks(page) if block.language == "sql" and page.name not in OWN_TEST
]
COMMAND: Final = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)


def given(page: Path) -> ModuleType | None:
    """What a page takes for granted."""
    name = f"tests.docs.given.{page.stem.lower().replace('-', '_')}"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page: Path, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page; what it starts is done after each block, and what `given` expects has happened."""
    setup = given(page)
    module = ModuleType(getattr(setup, "MODULE", f"docs_{page.stem.lower().replace('-', '_')}"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = module.__dict__
    names.update({name: value for name, value in vars(setup or module).items() if not name.startswith("__")})
    with getattr(setup, "around", nullcontext)():
        for block in to_run(page):
            code = "\n" * (block.line - 1) + block.text
            exec(compile(code, str(page), "exec", dont_inherit=True), names)
            drain()
        getattr(setup, "afterwards", lambda names: None)(names)


@pytest.mark.parametrize("block", SQL, ids=lambda block: block.place)
def test_the_sql_of_a_page_runs(block: Block, shop: str) -> None:
    """In a transaction that is rolled back; `%` is what it is in psql."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(block.text)
        transaction.set_rollback(True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_everything_else_can_be_read(page: Path) -> None:
    """Commands by their own parsers, shell by bash, configuration by what reads it; no language goes unread."""
    wrong = [f"{block.place}: {problem}" for block in blocks(page) for problem in unreadable(block)]
    assert not wrong, "\n".join(wrong)


def unreadable(block: Block) -> Iterator[str]:
    """What is wrong with a block that is not run."""
    reader = READERS.get(block.language)
    if reader is None:
        yield f"language {block.language!r}: add it to the readers of {__name__}, so that it is checked"
    else:
        yield from reader(block.text)


def _console(text: str) -> Iterator[str]:
    found = [line.replace("\\\n", " ") for line in COMMAND.findall(text)]
    yield from () if found else ["no line begins with '$ '"]
    yield from _commands(found)


def _script(text: str) -> Iterator[str]:
    joined = text.replace("\\\n", " ")
    yield from _bash(text)
    yield from _commands(line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def _commands(lines: Any) -> Iterator[str]:
    lines = list(lines)
    yield from _bash("\n".join(lines))
    yield from (problem for line in lines for problem in problems(line))


def _bash(text: str) -> Iterator[str]:
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, timeout=10)
    yield from [done.stderr] if done.returncode else []


def _yaml(text: str) -> Iterator[str]:
    for document in yaml.safe_load_all(text):
        yield from _commands(_started(document))


def _started(tree: Any) -> Iterator[str]:
    """The command lines of containers, anywhere in a tree."""
    if isinstance(tree, Mapping):
        words = [word for name in ("command", "args") for word in tree.get(name) or () if isinstance(tree[name], list)]
        yield from [" ".join(words)] if words else []
        yield from (line for value in tree.values() for line in _started(value))
    elif isinstance(tree, list):
        yield from (line for value in tree for line in _started(value))


def _ini(text: str) -> Iterator[str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    yield from _commands(parser[name]["ExecStart"] for name in parser.sections() if "ExecStart" in parser[name])


def _dockerfile(text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").splitlines():
        instruction, _, rest = line.partition(" ")
        if instruction == "RUN":
            yield from _commands([rest])
        elif instruction in ("CMD", "ENTRYPOINT"):
            yield from _commands([" ".join(json.loads(rest))])
        elif instruction not in ("FROM", "WORKDIR", "COPY", "ENV", "USER", "EXPOSE", ""):
            yield f"{instruction!r} is no instruction that is checked here"


def _runs(text: str) -> Iterator[str]:
    """Run, or run elsewhere; here it only has to be Python."""
    try:
        compile(text, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as problem:
        yield str(problem)


def _nothing(text: str) -> Iterator[str]:
    """What programs print, drawings, and what another test runs."""
    yield from ()


READERS: Final[Mapping[str, Callable[[str], Iterator[str]]]] = {
    "python": _runs, "sql": _nothing, "console": _console, "bash": _script, "sh": _script, "yaml": _yaml,
    "ini": _ini, "dockerfile": _dockerfile, "text": _nothing, "mermaid": _nothing, "": _nothing,
}  # fmt: skip


@pytest.mark.parametrize(("page", "test"), [(page, test) for page, (test, _) in OWN_TEST.items()])
def test_pages_with_a_test_of_their_own(page: str, test: str) -> None:
    """The test is there, and reads that page."""
    assert page in (ROOT / test).read_text()
