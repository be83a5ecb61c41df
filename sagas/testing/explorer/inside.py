"""What happens inside of a body: the calls that it makes, and faults that strike as one of them returns.

Python's trace function sees a body's own calls: those that its code, or a method of its saga class, makes to a Python
function. When such a call has returned its effect is there, and the answer can be lost on its way into the body, or
the worker can die right then. Calls of the framework and of dunder methods do not count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dis import opname
from inspect import iscoroutine
from types import CodeType, FrameType
from typing import Any

MOST_CALLS = 8  # of one body
OURS = ("sagas.", "sagas_")
GUARD = "sagas.guard"  # calls what is given to `effect()`
AROUND = (*OURS, "psycopg", "contextlib")  # what it calls besides
LETS_GO = (  # instructions
    *("SEND", "RETURN", "POP", "END", "YIELD", "JUMP", "RESUME"),
    *("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "DELETE_FAST", "DELETE_NAME", "DELETE_DEREF"),
)
COROUTINE = 0x80  # code flag of `async def`
GENERATORS = 0x20 | 0x200  # of generators, also asynchronous ones


class Watch:
    """Counts the calls of one body, and may raise when one of them returns.

    Args:
        body: the function.
        owner: the saga class, whose other methods count as part of the body.
        strike: called with the number and name of each call that has returned.
    """

    def __init__(self, body: Callable[..., Any], owner: type, strike: Callable[[int, str], None]) -> None:
        self._own = {body.__code__, *_methods(owner)}
        self._strike = strike
        self.calls: list[str] = []

    @contextmanager
    def on(self) -> Iterator[None]:
        """Watch the calling thread."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        return _Call(self, frame.f_code.co_qualname.rpartition("<locals>.")[2]) if self._counts(frame) else None

    def _counts(self, frame: FrameType) -> bool:
        code, caller = frame.f_code, frame.f_back
        if caller is None or code in self._own or code.co_flags & GENERATORS:
            return False
        if _lets_go(caller) and not code.co_flags & COROUTINE:
            return False
        module, calling = frame.f_globals.get("__name__", ""), caller.f_globals.get("__name__", "")
        if calling == GUARD:
            return caller.f_code.co_name in ("effect", "aeffect") and not module.startswith(AROUND)
        name = code.co_name
        plain = not name.startswith("<") and (not name.startswith("__") or name == "__call__")
        return caller.f_code in self._own and plain and (module != "sagas" and not module.startswith(OURS))

    def returned(self, name: str) -> None:
        """One of the calls has had its effect."""
        if len(self.calls) < MOST_CALLS:
            self.calls.append("effect" if name.startswith("<") else name)
            self._strike(len(self.calls), name)


class _Call:
    """The trace function of one call."""

    def __init__(self, watch: Watch, name: str) -> None:
        self._watch, self._name, self._raised = watch, name, False

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "exception":
            self._raised = True
        elif event == "line":
            self._raised = False  # it was caught
        elif event == "return" and not self._raised and _has_ended(frame, arg):
            self._watch.returned(self._name)
        return self


def _lets_go(frame: FrameType) -> bool:
    """Whether it calls nothing now: what runs on top of it is told that an object has gone, and nobody hears errors."""
    return opname[frame.f_code.co_code[frame.f_lasti]].startswith(LETS_GO)


def _has_ended(frame: FrameType, returned: object) -> bool:
    """Whether a call is over: a coroutine also "returns" whenever it waits, and what returns one has done nothing."""
    if frame.f_code.co_flags & COROUTINE:
        return opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")
    return not iscoroutine(returned)


def _methods(owner: type) -> Iterator[CodeType]:
    """The saga's own helper methods."""
    for base in owner.__mro__:
        if base.__module__.startswith("sagas."):
            continue
        for value in vars(base).values():
            function = getattr(value, "__func__", value)
            if hasattr(function, "__code__"):
                yield function.__code__
