"""`async def` functions where there is no event loop for them: one at a time, for the thread that asks.

In production that is a `resolve` of a step that is no `async def` itself; the testing kit and the explorer run
everything this way. Where asgiref is at work, as under Django, its rule holds that what is synchronous inside
(`sync_to_async`, the ORM) runs in the thread that asked, so on that thread's connection.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_here(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    asgiref = sys.modules.get("asgiref.sync")
    if asgiref is None:
        return asyncio.run(coroutine)

    async def awaited() -> T:
        return await coroutine

    found: T = asgiref.async_to_sync(awaited)()
    return found


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that waits for the database from such a coroutine, in the thread that asked."""
    asgiref = sys.modules.get("asgiref.sync")
    return function(*arguments) if asgiref is None else await asgiref.sync_to_async(function)(*arguments)
