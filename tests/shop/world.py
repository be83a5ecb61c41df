"""The world outside of the sagas under test: what it was asked for, and what it answers.

Bodies in `tests.shop.sagas` call `world.act(name, run)`. It takes a note and does what a test has put
into the script for that name: raise an exception, call a function with `run`, or return a value. Without
a script the answer is the name and a running number.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from typing import Any, NamedTuple


class Call(NamedTuple):
    """One thing the world was asked for."""

    name: str
    saga: str  # business key
    key: str  # idempotency key
    attempt: int
    argument: Any  # of a compensation


class World:
    """Calls so far, and the script of what is still to come. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.calls: list[Call] = []
        self.notes: list[str] = []
        self.amount = 100
        self._script: defaultdict[str, deque[Any]] = defaultdict(deque)

    def plan(self, name: str, *answers: Any, saga: str = "") -> None:
        """Answer the next calls of a name this way; `saga`: only those of the saga with this key."""
        self._script[name + saga].extend(answers)

    def always(self, name: str, answer: Any, saga: str = "") -> None:
        """Answer every call of a name this way."""
        self.plan(name, *[answer] * 1000, saga=saga)

    def act(self, name: str, run: Any, argument: Any = None) -> Any:
        """Do what a body asks for."""
        return self.ask(name, run, run.idempotency_key, argument)

    def ask(self, name: str, run: Any, key: str, argument: Any = None) -> Any:
        """Do what an effect of a body asks for, under a key of its own."""
        with self._lock:
            self.calls.append(Call(name, run.key, key, run.attempt, argument))
            number = len(self.calls)
            script = self._script[name + run.key] or self._script[name]
            answer = script.popleft() if script else f"{name}-{number}"
        if isinstance(answer, BaseException):
            raise answer
        return answer(run) if callable(answer) else answer

    @property
    def names(self) -> list[str]:
        """The names of the calls, in order."""
        return [call.name for call in self.calls]

    def of(self, name: str) -> list[Call]:
        """The calls of one name."""
        return [call for call in self.calls if call.name == name]

    def count(self) -> Counter[str]:
        """How often each name was called."""
        return Counter(self.names)


world = World()
