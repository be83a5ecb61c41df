"""Calls of a saga's own functions, apart from who makes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from sagas.loop import within
from sagas.threads import Clock, Threads


class Call(NamedTuple):
    """One call."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    awaited: bool  # declared `async def`
    ours: bool = False  # it runs nothing of the application


Calls = Generator[Call, Any, Any]  # is sent what each call returned, or thrown what it raised


async def awaited(call: Call, clock: Clock, threads: Threads) -> Any:
    """Make a call on the event loop, or from there in a thread.

    Args:
        call: what to call.
        clock: runs around it from when it begins, and says how many seconds it may take.
        threads: where it is called if it is no `async def`.

    Returns:
        What it returned.

    Raises:
        BaseException: what it raised; TimeoutError where it was cancelled.
        LeaseLost: it did not begin.
    """
    if call.ours:
        return await threads.apart(call.function, *call.arguments)
    if not call.awaited:
        return await threads.ask(clock, call.function, *call.arguments)
    with clock() as timeout:
        found = call.function(*call.arguments)
        return await within(timeout, found) if inspect.isawaitable(found) else found


def throwable(problem: BaseException) -> BaseException:
    """What a body raised, as it can be thrown into a generator: `GeneratorExit` would end that one instead."""
    if not isinstance(problem, GeneratorExit):
        return problem
    found = RuntimeError("the body raised GeneratorExit")
    found.__cause__ = problem
    return found
