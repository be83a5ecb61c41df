"""Putting the world back for a user who gave neither `reset` nor `setup`.

What the invariant looks at in the memory of the test is the world. Its plain containers, and the attributes of its
objects, are copied before the first story and put back before each one. What cannot be copied stays as it is; then
the story without a fault goes wrong the second time, and the user is asked for a `reset`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from sagas.testing.explorer.memory import CONTAINERS, DEEPEST, cells_of, names_of, refill


class World:
    """A copy of what a function mentions.

    Args:
        function: the user's invariant.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._kept: list[tuple[Any, Any]] = []
        seen: set[int] = set()
        for value in _mentioned(function, seen, DEEPEST):
            self._keep(value)

    def _keep(self, value: Any) -> None:
        content = value if isinstance(value, CONTAINERS) else getattr(value, "__dict__", None)
        if not content and not isinstance(value, CONTAINERS):
            return
        try:
            self._kept.append((value, copy.deepcopy(content)))
        except Exception:  # a lock, a connection: nothing to copy
            return

    def put_back(self) -> None:
        """Make it as it was."""
        for value, content in self._kept:
            if isinstance(value, CONTAINERS):
                refill(value, content)
            else:
                value.__dict__.clear()
                value.__dict__.update(copy.deepcopy(content))


def _mentioned(function: Callable[..., Any], seen: set[int], depth: int) -> Iterator[Any]:
    """Containers and objects of the user's own classes that a function, or one that it calls, has a name for."""
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None or depth < 0 or id(code) in seen:
        return
    seen.add(id(code))
    reach = {**getattr(function, "__globals__", {}), **cells_of(function)}
    for name in dict.fromkeys(names_of(code, reach)):
        value = reach.get(name)
        if isinstance(value, FunctionType):
            yield from _mentioned(value, seen, depth - 1)
        elif id(value) not in seen and _is_world(value):
            seen.add(id(value))
            yield value


def _is_world(value: object) -> bool:
    if isinstance(value, CONTAINERS):
        return True
    made_by = type(value).__module__.partition(".")[0]
    foreign = ("builtins", "django", "sagas", "decimal", "datetime", "uuid", "_thread", "logging", "typing")
    return made_by not in foreign and not isinstance(value, (type, ModuleType)) and hasattr(value, "__dict__")
