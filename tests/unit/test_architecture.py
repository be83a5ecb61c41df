"""The house rules that a tool can hold: who imports whom, who compares a status, how long a module may be."""

from __future__ import annotations

import ast
import logging.config
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

from sagas.states import Status

ROOT = Path(__file__).parents[2]
LIBRARY = ("sagas", "outbox", "integrations")
LONGEST_MODULE = 400  # lines
MACHINE = ROOT / "sagas" / "machine"
STATUSES = frozenset(status.value for status in Status)
QUOTED_STATUS = re.compile("'(" + "|".join(sorted(STATUSES)) + ")'")
LOOKUPS = {"filter", "exclude", "get", "Q", "When", "aget"}  # Django calls whose keywords compare
GENERATED = {"build", "dist", "var", "node_modules", "__pycache__"}


def library_files(suffix: str) -> list[Path]:
    """The library's own files, migrations apart."""
    found = (path for folder in LIBRARY for path in (ROOT / folder).rglob(f"*{suffix}"))
    return sorted(path for path in found if "migrations" not in path.parts)


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_imports_go_one_way(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Integrations stand on the core, the core on the outbox; the core knows no framework; the machine is pure."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", sys.path.copy())  # it adds to it
    monkeypatch.setattr(logging.config, "dictConfig", lambda given: None)  # it would switch all other loggers off
    passed = lint_imports(no_logo=True) == 0
    assert passed, capsys.readouterr().out


def test_modules_stay_readable() -> None:
    """No module of ours is longer than one sitting."""
    sources = [*library_files(".py"), *library_files(".sql"), *(ROOT / "example_project").rglob("*.py")]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources}
    too_long = {name: lines for name, lines in lengths.items() if lines > LONGEST_MODULE}
    assert not too_long, f"split these, by reason to change: {too_long}"


def names_status(node: ast.AST) -> bool:
    """Whether an operand is `Status.X`, a status spelled out, or a collection that holds one."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and part.value in STATUSES:
            return True
        of_enum = isinstance(part, ast.Attribute) and part.attr in Status.__members__
        if of_enum and ast.unparse(part.value).split(".")[-1] == "Status":
            return True
    return False


def status_comparisons(module: ast.Module) -> Iterator[int]:
    """Lines that compare a status: `==`, `in` and the like, `match`, and Django lookups."""
    for node in ast.walk(module):
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            compared = [node.value]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in LOOKUPS:
            compared = [word.value for word in node.keywords if word.arg and word.arg.split("__")[0] == "status"]
        else:
            continue
        if any(map(names_status, compared)):
            yield compared[0].lineno


def test_only_the_machine_compares_statuses() -> None:
    """Transitions are decided in one package; everything else asks it."""
    found = [
        place(path, line)
        for path in library_files(".py")
        if path.parent != MACHINE
        for line in status_comparisons(tree(path))
    ]
    assert not found, f"ask sagas.machine instead of comparing a status here: {found}"


@pytest.mark.parametrize(
    "offence",
    [
        "saga.status == Status.PARKED",
        "status in (states.Status.RUNNING, other)",
        "status not in {'parked', 'running'}",
        "'aborted' != status",
        "match status:\n    case 'parked' | Status.RUNNING: pass",
        "SagaRow.objects.filter(status__in=['parked'])",
        "Q(status=Status.PARKED)",
    ],
)
def test_a_status_comparison_is_noticed(offence: str) -> None:
    """The search above finds what it is meant to find."""
    assert list(status_comparisons(ast.parse(offence)))


@pytest.mark.parametrize(
    "fine",
    [
        "State(status=Status.PARKED)",
        "kind == LogKind.PARKED",
        "status == other.status",
        "text in Status._value2member_map_",
    ],
)
def test_other_uses_of_a_status_are_fine(fine: str) -> None:
    """Making a state, or comparing something else, decides no transition."""
    assert not list(status_comparisons(ast.parse(fine)))


def without_checks(sql: str) -> str:
    """The SQL without comments, views for analysts, indexes, and its CHECK (...) constraints; line numbers stay."""
    sql = re.sub(r"--[^\n]*", "", sql)
    sql = re.sub(r"^create (?:view|index) .*?;$", lambda found: "\n" * found[0].count("\n"), sql, flags=re.S | re.M)
    kept, position = [], 0
    for found in re.finditer(r"\bcheck\s*\(", sql, re.IGNORECASE):
        if found.start() < position:
            continue
        depth, end = 1, found.end()
        while depth and end < len(sql):
            depth += {"(": 1, ")": -1}.get(sql[end], 0)
            end += 1
        kept += [sql[position : found.start()], "\n" * sql.count("\n", found.start(), end)]
        position = end
    return "".join([*kept, sql[position:]])


def test_sql_names_no_status() -> None:
    """Statements are told statuses by the machine; only the schema's CHECKs, views and indexes name some."""
    found = []
    for path in library_files(".sql"):
        text = path.read_text()
        text = without_checks(text) if "schema" in path.parts else re.sub(r"--[^\n]*", "", text)
        found += [place(path, text.count("\n", 0, hit.start()) + 1) for hit in QUOTED_STATUS.finditer(text)]
    for path in library_files(".py"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and QUOTED_STATUS.search(node.value):
                found.append(place(path, node.lineno))
    assert not found, f"pass the status as a parameter here: {found}"


def test_library_does_not_print() -> None:
    """A library logs; only commands write to the terminal, through their framework."""
    found = [
        place(path, node.lineno)
        for path in library_files(".py")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not found, f"use logging, or self.stdout in a command: {found}"


def project_texts() -> Iterator[tuple[Path, str]]:
    """Every text file of the project that is not generated."""
    for path in ROOT.rglob("*"):
        inside = path.relative_to(ROOT).parts
        hidden = any(part.startswith(".") and part != ".ci" for part in inside[:-1])
        if (
            hidden
            or GENERATED & set(inside)
            or any(part.endswith(".egg-info") for part in inside)
            or not path.is_file()
        ):
            continue
        try:
            yield path, path.read_text()
        except UnicodeDecodeError:
            continue


def test_no_path_of_one_machine() -> None:
    """The tree works wherever it is cloned, and says nothing of where it was written."""
    private = [r"/(?:home|Users)/\w", r"/root\b"]
    if len(ROOT.parts) > 2:
        private.append(re.escape(str(ROOT)) + r"\b")
    pattern = re.compile(r"(?<![\w.])(?:" + "|".join(private) + ")")
    found = [
        place(path, text.count("\n", 0, hit.start()) + 1)
        for path, text in project_texts()
        if path != Path(__file__)
        for hit in pattern.finditer(text)
    ]
    assert not found, f"paths of one machine: {found}"
