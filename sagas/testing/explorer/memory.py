"""What a saga's bodies keep in the memory of their process, and what becomes of it when the process dies.

Each step may run in another process, so a module variable that one step sets and another reads works in a test and
not in production. In a test the outside world is usually in the memory of the same process, so the two have to be
told apart: what `setup`, `reset`, `input` or `invariant` mention is the world, and stays. Other variables of the saga's
module (and attributes of its class) that a body rebinds, or plain containers that it changes, are the memory of a
worker: a new worker has them as they were in the beginning.
"""

from __future__ import annotations

import copy
import dis
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from sagas.testing.explorer.places import SagaClass

CONTAINERS = (dict, list, set, deque, bytearray)
LARGEST = 10_000  # elements of a container that is copied
DEEPEST = 4  # calls from what the user gave, when looking for what it mentions

VARIABLES = {"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "STORE_DEREF", "IMPORT_FROM"}
ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR"}

Missing = object()


class Memory:
    """The module variables and class attributes that count as a worker's memory.

    Args:
        saga: the class.
        world: the user's functions that know the world outside.
    """

    def __init__(self, saga: SagaClass, world: Iterable[Callable[..., Any]]) -> None:
        given = list(world)
        mentioned = set().union(*(names_in(each) for each in given)) if given else set()
        module = sys.modules.get(saga.__module__)
        self._owners: list[tuple[Any, dict[str, tuple[object, object]]]] = []
        for owner in (module, saga) if given else ():
            if owner is not None:
                self._owners.append((owner, dict(_kept(owner, mentioned))))
        self._mentioned = mentioned

    def changed(self) -> list[str]:
        """Names of what is not as it was in the beginning."""
        return sorted(name for owner, kept in self._owners for name in self._differences(owner, kept))

    def forget(self) -> None:
        """Put everything back: a new process."""
        for owner, kept in self._owners:
            for name in self._differences(owner, kept):
                value, content = kept.get(name, (Missing, Missing))
                if value is Missing:
                    delattr(owner, name)
                    continue
                if content is not Missing:
                    refill(value, content)
                setattr(owner, name, value)

    def _differences(self, owner: Any, kept: dict[str, tuple[object, object]]) -> list[str]:
        found = []
        for name, (value, content) in kept.items():
            now = vars(owner).get(name, Missing)
            if now is not value or (content is not Missing and not _same(now, content)):
                found.append(name)
        return found + [name for name in vars(owner) if name not in kept and _is_state(owner, name, self._mentioned)]


def _kept(owner: Any, mentioned: set[str]) -> Iterator[tuple[str, tuple[object, object]]]:
    for name, value in list(vars(owner).items()):
        if _is_state(owner, name, mentioned):
            yield name, (value, _content(value))


def _is_state(owner: Any, name: str, mentioned: set[str]) -> bool:
    """Whether a name may stand for something that a body keeps."""
    value = vars(owner).get(name)
    code = isinstance(value, (type, FunctionType, ModuleType, classmethod, staticmethod, property))
    declared = isinstance(owner, type) and (name in OWN or hasattr(value, "__get__"))
    return not name.startswith("__") and name not in mentioned and not code and not declared


OWN = {"saga_name", "saga_version", "steps", "plan", "input_type", "_scope", "_run"}


def _content(value: object) -> object:
    if not isinstance(value, CONTAINERS) or len(value) > LARGEST:
        return Missing
    try:
        return copy.deepcopy(value)
    except Exception:  # it holds something that is no plain data
        return Missing


def _same(now: object, content: object) -> bool:
    try:
        return bool(now == content)
    except Exception:
        return True


def refill(value: Any, content: Any) -> None:
    """Put content into a container."""
    fresh = copy.deepcopy(content)
    value.clear()
    value.extend(fresh) if isinstance(value, (list, deque, bytearray)) else value.update(fresh)


def names_in(function: Callable[..., Any], depth: int = DEEPEST, seen: set[int] | None = None) -> set[str]:
    """Every name that a function mentions, and the functions and objects that it mentions."""
    seen = set() if seen is None else seen
    function = getattr(function, "__func__", function)
    function = getattr(function, "func", function)  # functools.partial
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if not isinstance(code, CodeType) or id(code) in seen or depth < 0:
        return set()
    seen.add(id(code))
    reach = {**getattr(function, "__globals__", {}), **cells_of(function)}
    names = set(names_of(code, reach))
    for name in list(names):
        for each in _functions_of(reach.get(name)):
            names |= names_in(each, depth - 1, seen)
    return names


def names_of(code: CodeType, reach: Mapping[str, Any]) -> Iterator[str]:
    """Variables of modules and closures; an attribute only if it is one of a module or a class."""
    owner = False
    for each in dis.get_instructions(code):
        name = each.argval if isinstance(each.argval, str) else ""
        if each.opname in VARIABLES or (owner and each.opname in ATTRIBUTES):
            yield name
        owner = each.opname in VARIABLES and isinstance(reach.get(name), (ModuleType, type))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_of(constant, reach)


def cells_of(function: Any) -> dict[str, Any]:
    """The closure of a function."""
    found = {}
    for name, cell in zip(getattr(function.__code__, "co_freevars", ()) if hasattr(function, "__code__") else (),
                          getattr(function, "__closure__", None) or (), strict=False):  # fmt: skip
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    return found


def _functions_of(value: object) -> Iterator[Callable[..., Any]]:
    """A function; or the methods of a class or of an object that the user's own module defines."""
    if isinstance(value, FunctionType):
        yield value
        return
    kind = value if isinstance(value, type) else type(value)
    if kind.__module__ in ("builtins", "decimal") or kind.__module__.startswith(("django.", "sagas.")):
        return
    for each in vars(kind).values():
        if isinstance(each, FunctionType):
            yield each
