"""The event loop of this process for `async def` functions, in a thread of its own.

There is one, whoever asks for it: what an application opens on a loop (a pool of connections, an HTTP client) serves
all bodies and resolves of a process, and breaks where a second loop touches it. It begins when it is first needed, so
after any fork, and ends when the last of those who need it has left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

log = logging.getLogger("sagas.worker")

T = TypeVar("T")

ENDS = 1.0  # seconds that ending it may take


class Loop:
    """An event loop that goes on, whatever its tasks do.

    Attributes:
        loop: for `call_soon_threadsafe` and the like.
        thread: it runs in.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.over = False  # it is to end
        self._awaited: set[Future[Any]] = set()  # threads wait for them
        self.thread = threading.Thread(target=self._run, name="sagas-async", daemon=True)
        self.thread.start()

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, for a thread that waits for it.

        Returns:
            What it returned.

        Raises:
            BaseException: what it raised; `CancelledError` if the loop was ended before it.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        self._awaited.add(future)
        try:
            if self.over:  # perhaps nobody runs it any more
                future.cancel()
            return future.result()
        except BaseException:
            future.cancel()  # where it was the thread that was told to stop
            raise
        finally:
            self._awaited.discard(future)

    def end(self) -> None:
        """End it, whatever still runs; who waits for that waits no longer."""
        self.over = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(ENDS)
        for future in tuple(self._awaited):
            future.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self.over:
            self._go_on()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def _go_on(self) -> None:
        """Run the loop until it is to end. A body that ends it would leave all others with their leases, for ever."""
        try:
            self.loop.run_forever()
            if not self.over:
                log.error("a body stopped the event loop, which is that of all async bodies; it goes on")
        except BaseException as problem:  # asyncio lets these through: of a task that a body has left behind
            log.error("a task beside async bodies raised %s; their event loop goes on", type(problem).__name__,
                      exc_info=problem)  # fmt: skip


async def within(timeout: float, awaitable: Awaitable[Any], *, label: str = "") -> Any:
    """Await something for so many seconds.

    Args:
        timeout: seconds.
        awaitable: what to await.
        label: what the task is to be called.

    Raises:
        TimeoutError: they have passed, and it was cancelled.
    """
    if label and (task := asyncio.current_task()) is not None:
        task.set_name(label)
    try:
        async with asyncio.timeout(timeout) as limit:
            return await awaitable
    except TimeoutError as problem:
        if not limit.expired():
            raise
        raise TimeoutError(f"cancelled: {timeout:g} s, its timeout, had passed") from problem


class _Process:
    """Who needs the loop of this process."""

    def __init__(self) -> None:
        self.changing = threading.Lock()
        self.loop: Loop | None = None
        self.users = 0
        self.stays = False


_process = _Process()


def join() -> Loop:
    """The loop of this process, until `leave`."""
    with _process.changing:
        if _process.loop is None:
            _process.loop = Loop()
        _process.users += 1
        return _process.loop


def stay() -> Loop:
    """The loop of this process, which goes on until the process ends."""
    loop = join()
    with _process.changing:
        first, _process.stays = not _process.stays, True
    if not first:
        leave()
    return loop


def leave() -> None:
    """No longer need it."""
    with _process.changing:
        _process.users -= 1
        if _process.users == 0 and _process.loop is not None:
            _process.loop.end()
            _process.loop = None


def _forget() -> None:
    global _process
    _process = _Process()


os.register_at_fork(after_in_child=_forget)  # threads do not live on in a child
