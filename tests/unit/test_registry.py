"""Which sagas a process knows, and what happens to types that are named late."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

import sagas.definition
from sagas import DefinitionError, Saga, UnknownSaga, step
from sagas.registry import Registry

MODULE = """
from __future__ import annotations
from dataclasses import dataclass
from sagas import Saga, step

class Late(Saga["Input"], name="{name}", version={version}):
    @step
    def first(self) -> Result: ...
    @first.compensate
    def undo(self, result: Result) -> None: ...

{rest}
"""
TYPES = """
@dataclass
class Input:
    part: Part
@dataclass
class Result:
    a: int
@dataclass
class Part:
    b: str
"""


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """An empty registry that new classes enter."""
    fresh = Registry()
    monkeypatch.setattr(sagas.definition, "registry", fresh)
    return fresh


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a module from text."""
    monkeypatch.syspath_prepend(tmp_path)
    written: list[str] = []

    def make(module: str, rest: str = TYPES, name: str = "test.late", version: int = 1) -> Any:
        (tmp_path / f"{module}.py").write_text(MODULE.format(rest=rest, name=name, version=version))
        importlib.invalidate_caches()
        written.append(module)
        return importlib.import_module(module)

    yield make
    for module in written:
        sys.modules.pop(module, None)


def make(name: str, version: int, qualname: str = "P") -> type[Saga[Any]]:
    class P(Saga[None], name=name, version=version):
        __qualname__ = qualname

        @step(compensate=None)
        def only(self) -> None: ...

    return P


def test_get_and_latest(registry: Registry) -> None:
    """A class is found by name and version from the moment it exists."""
    one, two, other = make("a", 1, "One"), make("a", 2, "Two"), make("b", 1)
    assert registry.get("a", 1) is one
    assert registry.latest("a") is two
    assert list(registry.definitions()) == [one, two, other]
    assert registry.versions("a") == [1, 2]


def test_unknown(registry: Registry) -> None:
    """The message lists what is known and says what to do."""
    make("a", 1)
    with pytest.raises(UnknownSaga, match=r"'a' version 7 is not registered.*only version 1: deploy"):
        registry.get("a", 7)
    with pytest.raises(UnknownSaga, match=r"'b' version 1 is not registered.*import the module.*Sagas\(modules="):
        registry.get("b", 1)
    with pytest.raises(UnknownSaga, match="'b' is not registered"):
        registry.latest("b")


def test_duplicate(registry: Registry) -> None:
    """Two classes cannot share a name and version; the message names both and the next version."""
    one = make("a", 1, "One")
    make("a", 4, "Four")
    with pytest.raises(DefinitionError, match=r"test_registry\.Two: name='a', version=1 is taken by .*One.*version=5"):
        make("a", 1, "Two")
    assert registry.get("a", 1) is one


def test_reload_replaces(registry: Registry, write: Any) -> None:
    """A module that is imported again brings its class again; that is no duplicate."""
    module = write("late_reload")
    before = module.Late
    importlib.reload(module)
    assert registry.get("test.late", 1) is module.Late is not before


def test_types_named_late(registry: Registry, write: Any) -> None:
    """Types that are defined below the class are resolved on first use, or by load()."""
    module = write("late_first_use")
    assert module.Late.plan.steps[0].name == "first"
    assert module.Late.input_type is module.Input
    module = write("late_load", name="test.late2")
    registry.load()
    assert module.Late.first.compiled[1] is module.Result


def test_result_type_of_a_late_step(write: Any) -> None:
    """A step's own attributes resolve its class as well."""
    module = write("late_step")
    assert module.Late.first.result_type is module.Result
    assert module.Late.first.plan.undo is not None


def test_types_that_never_come(registry: Registry, write: Any) -> None:
    """load() reports every class whose types are missing or cannot be stored, in one error."""
    write("late_missing", rest="", name="test.missing")
    write("late_wrong", rest=TYPES.replace("b: str", "b: object"), name="test.wrong")
    fine = write("late_fine", name="test.fine")
    with pytest.raises(DefinitionError) as caught:
        registry.load()
    missing, wrong = caught.value.problems
    assert "late_missing.Late: name 'Input' is not defined" in missing
    assert "TYPE_CHECKING" in missing
    assert "late_wrong.Late: input: Input cannot be stored: field `part.b`: object" in wrong
    assert fine.Late.plan


def test_late_problems_come_back_on_use(write: Any) -> None:
    """A class that failed to load does not pretend to have a plan."""
    module = write("late_again", rest="")
    for _ in range(2):
        with pytest.raises(DefinitionError, match="'Input' is not defined"):
            module.Late.plan  # noqa: B018
