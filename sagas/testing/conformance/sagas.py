"""The suite's sagas. What their bodies do is up to the test."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagas.children import child_saga
from sagas.decorators import external_step, step
from sagas.definition import Saga
from sagas.locks import semantic_lock
from sagas.retry import Retry
from sagas.waits import wait_for

if TYPE_CHECKING:
    from sagas.testing.conformance.adapter import Integration

THRICE = Retry(max_attempts=3, first=1, factor=1, longest=1)
WRITE = "write"


class Stage:
    """What bodies do, and what they did."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plays: dict[str, Callable[[Any], object]] = {}
        self._integration: Integration | None = None
        self.calls: Counter[tuple[str, str]] = Counter()

    def set_up(self, integration: Integration) -> None:
        """Forget everything, and write by this integration from now on."""
        self._plays.clear()
        self.calls.clear()
        self._integration = integration

    def plays(self, what: str, body: Callable[[Any], object]) -> None:
        """Let bodies whose input says so do this, after they have written their note."""
        self._plays[what] = body

    def act(self, name: str, run: Any, *, writes: bool = True) -> str:
        """Do what a body is to do."""
        with self._lock:
            self.calls[name, run.key] += 1
        assert self._integration is not None
        if writes:
            self._integration.write(run, f"{name} {run.key}")
        play = self._plays.get(run.input.what)
        return "done" if play is None else str(play(run))


stage = Stage()


@dataclass(frozen=True)
class Told:
    """The usual input: what the bodies are to do."""

    what: str = WRITE
    text: str = ""


@dataclass(frozen=True)
class Answer:
    """A signal."""

    text: str


class Local(Saga[Told], name="conformance.local", version=1):
    """One local step."""

    @step(retry=THRICE, compensate=None)
    def body(self) -> str:
        return stage.act("body", self)


class External(Saga[Told], name="conformance.external", version=1):
    """One external step."""

    @external_step(retry=THRICE, compensate=None)
    def body(self) -> str:
        return stage.act("body", self, writes=False)


class There(Saga[Told], name="conformance.there", version=1):
    """A local step that can be undone, then one that does what it is told."""

    @step(retry=THRICE)
    def first(self) -> str:
        stage.calls["first", str(self.key)] += 1
        return "first"

    @first.compensate
    def back(self, result: str) -> None:
        stage.calls[f"back from {result}", str(self.key)] += 1

    @step(retry=THRICE, compensate=None)
    def body(self) -> str:
        return stage.act("body", self)


class Asking(Saga[Told], name="conformance.asking", version=1):
    """A wait for a signal, then a local step that keeps what it said."""

    answer = wait_for(Answer)

    @step(retry=THRICE, compensate=None)
    def body(self) -> str:
        return f"{stage.act('body', self)}: {self.answer.result.text}"


ONE_OF_THEM = semantic_lock("conformance", wait=3600)


class Locks(Saga[Told], name="conformance.locks", version=1):
    """A local step that takes a semantic lock, then a wait."""

    @step(retry=THRICE, compensate=None, lock=ONE_OF_THEM)
    def body(self) -> str:
        return stage.act("body", self)

    answer = wait_for(Answer)


class LocksOutside(Saga[Told], name="conformance.locks_outside", version=1):
    """The same with an external step."""

    @external_step(retry=THRICE, compensate=None, lock=ONE_OF_THEM)
    def body(self) -> str:
        return stage.act("body", self, writes=False)

    answer = wait_for(Answer)


class Kid(Saga[Told], name="conformance.kid", version=1):
    """A local step that can be undone."""

    @step(retry=THRICE)
    def first(self) -> str:
        return "done"

    @first.compensate
    def back(self, result: str) -> None:
        stage.calls[f"back from {result}", ""] += 1


class Family(Saga[Told], name="conformance.family", version=1):
    """A child, one saga for each of three items, and a local step that does what it is told."""

    child = child_saga(Kid, input=lambda self: self.input, result=Kid.first)

    @external_step(for_each=lambda self: range(3), concurrency=2, retry=THRICE)
    def items(self, item: int) -> str:
        return str(item)

    @items.compensate
    def item_back(self, item: int, result: str) -> None:
        stage.calls["item back", result] += 1

    @step(retry=THRICE, compensate=None)
    def body(self) -> str:
        told = stage.act("body", self)
        stage.calls["last", told] += 1
        return told
