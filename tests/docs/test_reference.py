"""The reference names everything that users may import, and nothing in it is without a word of explanation."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import sagas
import sagas.testing
import sagas_outbox
import sagas_sqlalchemy
from sagas.each import MOST_AT_ONCE, MOST_ITEMS, Each, Tolerate
from sagas.engine import SagaRun
from tests.docs.reading import PAGES as PAGES_OF_ALL
from tests.docs.reading import ROOT

PAGES: Final = ("api.md", "api-integrations.md")
TEXT: Final = "\n".join((ROOT / "docs" / name).read_text() for name in PAGES)
NAMED: Final = re.findall(r"^::: ([\w.]+)$", TEXT, re.MULTILINE)
CONSTANTS: Final = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE))))
LISTED: Final = {package: tuple(package.__all__) for package in (sagas, sagas_outbox, sagas_sqlalchemy, sagas.testing)}
MODULES: Final = {  # where a package lists no names: what its pages tell people to import
    "sagas.hooks": ("Happening", "drain", "off", "on"),
    "sagas.logs": ("JsonFormatter", "SagaFilter"),
    "sagas_celery.drop_in": ("make_transactional", "publishing_on"),
    "sagas_celery.inbox": ("task_message_id",),
    "sagas_celery.publisher": ("CeleryPublisher",),
    "sagas_django.admin_inline": ("SagaInline",),
    "sagas_django.inbox": ("inbox",),
    "sagas_django.metrics": ("metrics_view",),
    "sagas_django.models": ("HasSagas", "sagas_of"),
    "sagas_django.signals": ("saga_parked", "step_failed"),
    "sagas_outbox.redis_stream": ("RedisStreamPublisher",),
    "sagas_sqlalchemy.alembic": ("downgrade", "include_object", "upgrade"),
}
READ: Final = [page for page in PAGES_OF_ALL if page.name != "CHANGELOG.md"]
VALUES: Final = {  # the types of what an option takes
    "on_existing": (sagas.OnExisting,),
    "missing": (sagas.Missing,),
    "on_unknown": (sagas.OnUnknown,),
    "on_timeout": (sagas.OnTimeout, sagas.OnUnknown),
    "on_failure": (Tolerate,),
    "overlap": (sagas.Overlap,),
    "catch_up": (sagas.CatchUp,),
}
OPTIONS: Final = {*signature(Each).parameters, *signature(sagas.Retry).parameters}
PUBLIC: Final = [
    *((package.__name__, name) for package, names in LISTED.items() for name in names),
    *((module, name) for module, names in MODULES.items() for name in names),
]


def found(path: str) -> Any:
    """What a name of the reference is the name of."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (AttributeError, ModuleNotFoundError):
        return import_module(path)


@pytest.fixture(scope="module")
def described() -> dict[int, str]:
    """What the reference describes, and what is in the modules that it describes whole."""
    there: dict[int, str] = {}
    for path in NAMED:
        one = found(path)
        there[id(one)] = path
        if isinstance(one, ModuleType):
            own = {name: each for name, each in vars(one).items() if not name.startswith("_")}
            there |= {id(each): f"{path}.{name}" for name, each in own.items() if not isinstance(each, ModuleType)}
    return there


def test_every_public_name_is_in_the_reference(described: dict[int, str]) -> None:
    """By itself, in a module that is described whole, or in the table of short names."""
    missing = [
        f"{module}.{name}"
        for module, name in PUBLIC
        if id(getattr(import_module(module), name)) not in described and name not in CONSTANTS
    ]
    assert not missing, f"add `::: name` for each to one of {', '.join(PAGES)}"


def test_what_is_in_the_reference_says_what_it_is() -> None:
    """It exists, and has a docstring of its own."""
    assert not [path for path in NAMED if not found(path).__doc__]


def test_no_module_is_shown_instead() -> None:
    """Where a function has the name of its module, the site would show the module: such a function is named in full."""
    assert not [path for path in NAMED if _module(path) and not isinstance(found(path), ModuleType)]


def _module(path: str) -> bool:
    package, *names = path.split(".")
    file = Path(next(iter(import_module(package).__path__)), *names)
    return file.is_dir() or file.with_suffix(".py").exists()


def test_nothing_is_named_twice() -> None:
    """A name is one anchor."""
    assert sorted(NAMED) == sorted(set(NAMED))


def test_every_command_is_in_the_reference() -> None:
    """With its arguments and options, as the parser has them: `python docs/draw_commands.py` draws the table."""
    page = (ROOT / "docs" / "cli.md").read_text()
    assert _script("draw_commands").drawn(page) == page, "run `python docs/draw_commands.py`"


def test_every_id_of_doctor_is_in_the_reference() -> None:
    """And no other; `missing-` and `unfit-` stand for what is named after the kind of object."""
    page = (ROOT / "docs" / "cli.md").read_text().partition("## Doctor")[2].partition("## ")[0]
    cells = re.findall(r"^\| (`[a-z].*?) \|", page, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`([a-z-]+)`", cell)}
    files = [file for folder in ("sagas", "integrations") for file in (ROOT / folder).rglob("*.py")]
    said = {name for file in files for name in _ids(file) if name and not name.startswith("sagas.")}
    kinds = {name for name in said if name.endswith("-")}
    assert kinds == {"missing-", "unfit-"} and all(any(name.startswith(kind) for name in named) for kind in kinds)
    assert {name for name in named if not name.startswith((*kinds,)) or name in said} == said - kinds


def _ids(file: Path) -> Iterator[str]:
    """What a module gives problems as their ids: the first argument of the three levels, or `id=`."""
    for call in ast.walk(ast.parse(file.read_text())):
        if isinstance(call, ast.Call):
            called = {node.id for node in ast.walk(call.func) if isinstance(node, ast.Name)}  # or one of two
            ids = call.args[:1] if called & {"_error", "_warning", "_note"} else []
            ids += [each.value for each in call.keywords if "Problem" in called and each.arg == "id"]
            texts = [node.value for one in ids for node in ast.walk(one) if isinstance(node, ast.Constant)]
            yield from (text for text in texts if isinstance(text, str))


def test_every_option_is_in_the_reference() -> None:
    """Of steps, compensations, waits, children, locks, `Retry` and `start()`: types, defaults, what they do."""
    page = (ROOT / "docs" / "steps.md").read_text()
    assert _script("draw_options").drawn(page) == page, "run `python docs/draw_options.py`"


def test_a_value_that_a_page_gives_an_option_is_one_it_takes() -> None:
    """`from sagas import` has what is written after `on_existing=` and its like, and the option takes it."""
    given = [
        (page.name, option, value)
        for page in READ
        for option, value in re.findall(rf"\b({'|'.join(VALUES)})=([A-Z][\w.]*)", page.read_text())
    ]
    assert {option for _, option, _ in given} == VALUES.keys()
    assert [each for each in given if not isinstance(_named(each[2]), VALUES[each[1]])] == []


def _named(path: str) -> Any:
    """What a reader has who imports the first part of a dotted name from `sagas`; None: there is nothing."""
    one: Any = sagas
    for name in path.rstrip(".").split("."):
        one = getattr(one, name, None)
    return one


def test_short_names_are_given_to_options_that_exist() -> None:
    """The table of short names says where they belong."""
    named = set(re.findall(r"^\| `.* as `(\w+)=` of ", TEXT, re.MULTILINE))
    assert named and named <= OPTIONS


def test_every_attribute_of_a_run_is_in_the_reference() -> None:
    """What `get()` returns, beside the site; and no attribute that it has not."""
    page = (ROOT / "docs" / "api.md").read_text()
    part = page.partition("### What get() returns")[2].partition("Of each of")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    there = {each.name for each in fields(SagaRun)} | {"allowed_actions"}
    assert named <= there and there <= set(re.findall(r"`(\w+)`", part))


def _script(name: str) -> Any:
    place = ROOT / "docs" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec is not None and spec.loader is not None
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    return draw


def test_the_widest_fan_out_is_the_one_on_the_page() -> None:
    """The figures of eight-questions.md are those of the code."""
    page = (ROOT / "docs" / "eight-questions.md").read_text()
    assert f"**{MOST_ITEMS:,} items, of which {MOST_AT_ONCE:,} are under way at the same time**" in page
    assert len(re.findall(r"^## \d\. .*\?$", page, re.MULTILINE)) == 8
