"""Callbacks for what happened to sagas: somebody is paged when one parks.

    @hooks.on(Kind.PARKED)
    def page(happening: hooks.Happening) -> None: ...

They are called after the commit, in a thread of their own in the process of the worker that recorded it, so that
neither an error nor a slow callback hurts the worker. What is told **at most once** this way is lost when the process
dies, and dropped when too much is waiting. What must not be lost is a step of the saga: it comes from the outbox, and
is done at least once. See docs/hooks.md.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from sagas.events import Decision, Direction, Entry, Kind
from sagas.fold import UNTOUCHED, track_of
from sagas.ports import Store
from sagas.states import State, Status
from sagas.store.rows import Delivery
from sagas.threads import tidied

log = logging.getLogger("sagas.hooks")

MOST_WAITING: Final = 1000  # happenings; more are dropped
COMPLAIN_EVERY: Final = 10.0  # seconds
LAST_ORDERS: Final = 2.0  # seconds that a worker which ends waits for callbacks
FAILURES: Final = {Kind.STEP_FAILED: Direction.DO, Kind.UNDO_FAILED: Direction.UNDO}


@dataclass(frozen=True, kw_only=True, slots=True)
class Happening:
    """One entry that was written to the log of a saga. It holds no payload."""

    kind: Kind
    saga_id: UUID
    name: str
    version: int
    key: str
    seq: int
    status: Status  # of the saga, after all that was decided together
    step: str | None = None
    attempt: int = 0
    failures: int = 0  # of the step so far, in the present budget
    reason: str = ""  # why it parked or turned back, or what somebody gave as the reason
    error: str = ""  # of a failed attempt: its type and message


Callback = Callable[[Happening], object]
Call = TypeVar("Call", bound=Callback)


def always(kind: Kind) -> bool:
    """Somebody wants to know, at any time."""
    return True


@dataclass(frozen=True, slots=True)
class Listener:
    """A callback, and what it is told of."""

    callback: Callback
    kinds: frozenset[Kind]
    name: str | None
    times: int | None
    when: Callable[[Kind], bool]

    def wants(self, happening: Happening, before: int) -> bool:
        """Whether it is to be told of this; `before`: how often the step had failed before."""
        if self.name not in (None, happening.name):
            return False
        return happening.kind not in FAILURES or self.times is None or before < self.times <= happening.failures


_listeners: list[Listener] = []
_kinds: set[Kind] = set()


def on(
    *kinds: Kind | str, name: str | None = None, times: int | None = 1, when: Callable[[Kind], bool] = always
) -> Callable[[Call], Call]:  # fmt: skip
    """Register a callback, as a decorator.

    Args:
        kinds: of log entries, such as `Kind.PARKED`, `Kind.COMPLETED`, `Kind.COMPENSATED` or `"step_failed"`.
        name: only sagas of this name.
        times: of `step_failed` and `undo_failed`: once the step has failed so often, and only then; None: each time.
        when: asked first, for a kind, whether anybody wants to know at the moment. It has to be quick.

    Raises:
        ValueError: there is no such kind, none is given, or `times` is below 1.
    """
    if not kinds:
        raise ValueError(f"hooks.on(): name a kind of log entry, one of {', '.join(Kind)}")
    if times is not None and times < 1:
        raise ValueError(f"hooks.on(times={times}): at least 1")
    chosen = frozenset(Kind(kind) for kind in kinds)

    def register(callback: Call) -> Call:
        _listeners.append(Listener(callback, chosen, name, times, when))
        _kinds.update(chosen)
        return callback

    return register


def listeners() -> tuple[Listener, ...]:
    """Who is told of what."""
    return tuple(_listeners)


def off(callback: Callback) -> None:
    """Forget a callback."""
    _listeners[:] = [
        each for each in _listeners if each.callback != callback
    ]  # a bound method is another object each time
    _kinds.clear()
    _kinds.update(kind for each in _listeners for kind in each.kinds)


def committed(delivery: Delivery, before: State, decision: Decision) -> None:
    """Tell callbacks of a decision that is committed. Called by the recorder; never waits."""
    for entry in decision.entries:
        if entry.kind not in _kinds:
            continue
        told = None
        for listener in _listeners:
            if entry.kind not in listener.kinds or not listener.when(entry.kind):
                continue
            told = told or _happening(delivery, before, decision, entry)
            if listener.wants(*told):
                _tell(listener.callback, told[0])


def _tell(callback: Callback, happening: Happening) -> None:
    if _here.around is None:
        _teller().put(callback, happening)
        return
    with _here.around():
        try:
            callback(happening)
        except Exception:
            _complain(callback, happening)


@contextmanager
def told_here(around: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Have callbacks called at once in this thread, when it is the one that records: for tests, whose transaction no
    other thread sees.

    Args:
        around: each call.
    """
    before, _here.around = _here.around, around
    try:
        yield
    finally:
        _here.around = before


def in_own_thread() -> bool:
    """Whether this thread, in which a callback is called, is theirs alone."""
    return _here.around is None


def tidy_with(store: Store) -> None:
    """Look after the connections of a store around callbacks, as it is done around steps, until `leave_untidied`."""
    global _stores
    _stores = [*_stores, store]


def leave_untidied(store: Store) -> None:
    """The worker of that store has ended."""
    global _stores
    left = [*_stores]
    if store in left:
        left.remove(store)
    _stores = left


def drain(timeout: float | None = None) -> None:
    """Wait until what was to be told is told, at most so many seconds (None: two)."""
    if _current is not None and _current.pid == os.getpid():
        _current.drain(LAST_ORDERS if timeout is None else timeout)


def _happening(delivery: Delivery, before: State, decision: Decision, entry: Entry) -> tuple[Happening, int]:
    """What was written, and how often its step had failed before."""
    direction, error = FAILURES.get(entry.kind), entry.data.error
    earlier = 0 if direction is None else _failed(before, entry, direction)
    now = 0 if direction is None else max(_failed(decision.state, entry, direction), earlier + 1)
    return Happening(
        kind=entry.kind, saga_id=delivery.saga_id, name=delivery.name, version=delivery.version, key=delivery.key,
        seq=entry.seq, status=decision.state.status, step=entry.step, attempt=entry.attempt, failures=now,
        reason=entry.data.reason, error="" if error is None else f"{error.type}: {error.message}",
    ), earlier  # fmt: skip


def _failed(state: State, entry: Entry, direction: Direction) -> int:
    return track_of(state.steps.get(entry.step or "", UNTOUCHED), direction).failures


class _Teller:
    """The thread that calls."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._waiting: queue.Queue[tuple[Callback, Happening]] = queue.Queue(MOST_WAITING)
        self._complained_at = float("-inf")
        threading.Thread(target=self._run, name="sagas-hooks", daemon=True).start()

    def put(self, callback: Callback, happening: Happening) -> None:
        try:
            self._waiting.put_nowait((callback, happening))
        except queue.Full:
            if time.monotonic() - self._complained_at > COMPLAIN_EVERY:
                self._complained_at = time.monotonic()
                log.warning("callbacks are too slow: %d wait, more are dropped", MOST_WAITING)

    def drain(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        with self._waiting.all_tasks_done:
            while self._waiting.unfinished_tasks and (left := until - time.monotonic()) > 0:
                self._waiting.all_tasks_done.wait(left)

    def _run(self) -> None:
        while True:
            callback, happening = self._waiting.get()
            try:
                with tidied(*_stores):
                    callback(happening)
            except Exception:
                _complain(callback, happening)
            finally:
                self._waiting.task_done()


def _complain(callback: Callback, happening: Happening) -> None:
    log.exception(
        "the callback %s failed, told that saga %s %s (key %r): %s", getattr(callback, "__qualname__", callback),
        happening.name, happening.saga_id, happening.key, happening.kind,
    )  # fmt: skip


class _Here(threading.local):
    """Of a thread that calls callbacks itself: what is put around each call."""

    around: Callable[[], AbstractContextManager[object]] | None = None


_here = _Here()
_stores: list[Store] = []  # of workers that run here
_current: _Teller | None = None
_making = threading.Lock()


def _teller() -> _Teller:
    """The thread of this process: threads do not cross a fork."""
    global _current
    if _current is None or _current.pid != os.getpid():
        with _making:
            if _current is None or _current.pid != os.getpid():
                _current = _Teller()
    return _current
