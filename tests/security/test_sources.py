"""What must not be in the sources at all: pickle, eval, SQL that is put together, errors that carry secrets."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest
from celery import Celery

from tests.unit.test_architecture import ROOT, library_files, place, tree

NEVER = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle", "yaml", "joblib"}
CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "subprocess.getoutput", "mark_safe"}
RULES = ("S102", "S301", "S302", "S307", "S308", "S501", "S506", "S602", "S604", "S605", "S608", "S701", "S702")
PATHS = ("sagas", "outbox", "integrations")


def offences(module: ast.Module) -> list[tuple[int, str]]:
    """Imports of modules that make objects out of bytes, and calls that run text."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found += [(node.lineno, each.name) for each in node.names if each.name.split(".")[0] in NEVER]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in NEVER:
            found.append((node.lineno, node.module or ""))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS:
            found.append((node.lineno, ast.unparse(node.func)))
    return found


def test_nothing_is_unpickled_or_evaluated() -> None:
    """No module of the library imports pickle or its like, or calls eval, exec or a shell."""
    found = [f"{place(path, line)}: {what}" for path in library_files(".py") for line, what in offences(tree(path))]
    assert not found


@pytest.mark.parametrize(
    "offence", ["import pickle", "from yaml import load", "import marshal as m", "eval(text)", "os.system(text)"]
)
def test_an_offence_is_noticed(offence: str) -> None:
    """The search above finds what it is meant to find."""
    assert offences(ast.parse(offence))


def test_no_template_of_ours_switches_escaping_off() -> None:
    """Django escapes what is shown, unless a template says `safe` or `autoescape off`."""
    found = [
        str(path.relative_to(ROOT))
        for path in library_files(".html")
        if any(word in path.read_text() for word in ("|safe", "| safe", "autoescape off", "safeseq", "mark_safe"))
    ]
    assert not found


def test_sql_takes_values_as_parameters_only() -> None:
    """`make lint` asks flake8-bandit, as ruff has it, for SQL that is put together, shells and unsafe loaders."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert set(RULES) <= set(lint["select"])
    library = {name: rules for name, rules in lint["per-file-ignores"].items() if name.startswith(PATHS)}
    assert library == {"sagas/testing/**": ["S608"]}, "which runs where tests run"
    silenced = [
        place(path, number)
        for path in library_files(".py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"noqa: S\d", line)
    ]
    assert [where.partition(":")[0] for where in silenced] == ["integrations/sagas_sqlalchemy/alembic.py"]


def test_our_task_is_json_and_keeps_no_result() -> None:
    """Messages are JSON whatever the app's default is, and workers take JSON only, unless the app says otherwise."""
    import sagas_celery.tasks as ours

    assert list(Celery("fresh", set_as_current=False).conf.accept_content) == ["json"]
    assert ours.run.serializer == "json" and ours.run.ignore_result
