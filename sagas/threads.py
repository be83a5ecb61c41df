"""Threads beside the event loop of `async def` bodies: what waits there holds up no other body.

Functions of the application have threads of their own, so that however long they take, what the engine asks of the
database goes on. As in the threads that run plain steps, the application's connections are looked after around them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from typing import Any

from sagas.errors import LeaseLost
from sagas.ports import Store

EACH = 8  # threads

Clock = Callable[[], AbstractContextManager[float]]


@contextmanager
def tidied(*stores: Store) -> Iterator[None]:
    """Look after the application's connections of this thread around a function that runs in no batch.

    Args:
        stores: whose.
    """
    for store in stores:
        store.between()
    try:
        yield
    finally:
        for store in stores:
            store.after_body()
            store.between()


class Threads:
    """The threads of one worker; each starts when it is first needed.

    Args:
        around: each function of the application.
        patience: seconds that one of them may wait for a thread.
    """

    def __init__(self, around: Callable[[], AbstractContextManager[None]], patience: float) -> None:
        self._around, self._patience = around, patience
        self._own = ThreadPoolExecutor(EACH, thread_name_prefix="sagas-async-io")
        self._asking = ThreadPoolExecutor(EACH, thread_name_prefix="sagas-async-ask")
        self.recording = ThreadPoolExecutor(  # nobody waits here but for the recorder
            2, thread_name_prefix="sagas-async-record"
        )

    async def apart(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call what waits for the database in a thread, with the context of the caller; on the loop."""
        call = copy_context().run
        return await asyncio.get_running_loop().run_in_executor(self._own, call, function, *arguments)

    async def ask(self, clock: Clock, function: Callable[..., Any], *arguments: Any) -> Any:
        """Likewise a function of the application.

        Args:
            clock: runs around it from when a thread is free for it.
            function: what to call.
            arguments: with what.

        Raises:
            LeaseLost: it has not begun, and will not: no thread was free in time, or the worker ends.
        """
        try:
            future = self._asking.submit(copy_context().run, self._looked_after, clock, function, *arguments)
        except RuntimeError as problem:
            raise LeaseLost(f"not begun: {problem}") from problem
        waits = asyncio.get_running_loop().call_later(self._patience, future.cancel)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if future.cancelled():
                raise LeaseLost("not begun: no thread was free in time") from None
            raise
        finally:
            waits.cancel()

    def ask_no_more(self) -> None:
        """Begin no function of the application any more."""
        self._asking.shutdown(wait=False, cancel_futures=True)

    def end(self, *, wait: bool) -> None:
        """End them.

        Args:
            wait: for what runs in them.
        """
        for each in (self._own, self._asking, self.recording):
            each.shutdown(wait=wait)

    def _looked_after(self, clock: Clock, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            with clock(), self._around():
                return function(*arguments)
        except StopIteration as problem:  # of a `next()`, say; no future passes it on, and whoever waits would for ever
            raise RuntimeError("the function raised StopIteration") from problem
