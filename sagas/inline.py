"""`async def` functions one at a time, for the thread that asks: so the testing kit and the explorer run them.

Under Django its rule holds that what is synchronous inside (`sync_to_async`, the ORM) runs in the thread that asked, so
on the connection of the test. Elsewhere they share one event loop, as in a worker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any, TypeVar

from sagas import loop

T = TypeVar("T")


def run_here(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    asgiref = _asgiref()
    if asgiref is None:
        return loop.stay().wait_for(coroutine)

    async def awaited() -> T:
        return await coroutine

    found: T = asgiref.async_to_sync(awaited)()
    return found


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that waits for the database from such a coroutine, in the thread that asked."""
    asgiref = _asgiref()
    return function(*arguments) if asgiref is None else await asgiref.sync_to_async(function)(*arguments)


def _asgiref() -> ModuleType | None:
    return sys.modules.get("asgiref.sync") if "django.db" in sys.modules else None
