"""The sagas that are measured, each as little as its peer's workflow."""

from __future__ import annotations

import os
import time
import urllib.request
from dataclasses import dataclass

from sagas import Saga, external_step, step


@dataclass(frozen=True)
class NoopInput:
    """What the steps are given: as little as the peers' are."""

    number: int


class Noop(Saga[NoopInput], name="bench.noop", version=1):
    """Three external steps that do nothing: the same work as the peers' workflows and chains."""

    @external_step(compensate=None)
    def first(self) -> None:
        """Do nothing."""

    @external_step(compensate=None)
    def second(self) -> None:
        """Do nothing."""

    @external_step(pivot=True)
    def third(self) -> None:
        """Do nothing."""


class Single(Saga[NoopInput], name="bench.single", version=1):
    """One external step that does nothing, in a queue that nobody else uses; its result says when it began."""

    @external_step(pivot=True)
    def only(self) -> float:
        """Tell the machine's monotonic clock, which all processes share."""
        return time.monotonic()


class Inserts(Saga[NoopInput], name="bench.inserts", version=1):
    """Three local steps, each one ORM insert."""

    @step(compensate=None)
    def first(self) -> None:
        """Insert a line."""
        _insert(self.input.number)

    @step(compensate=None)
    def second(self) -> None:
        """Insert a line."""
        _insert(self.input.number)

    @step(pivot=True)
    def third(self) -> None:
        """Insert a line."""
        _insert(self.input.number)


def _insert(number: int) -> None:
    from tests.benchmarks.models import Note

    Note.objects.create(text=f"note {number}")


class Call(Saga[NoopInput], name="bench.call", version=1):
    """One step that calls a local server which takes 10 ms to answer."""

    @external_step(pivot=True)
    def call(self) -> int:
        """Ask the server at `BENCH_URL`."""
        with urllib.request.urlopen(os.environ["BENCH_URL"], timeout=5) as answer:
            return int(answer.status)


class Carry(Saga[str], name="bench.carry", version=1):
    """Three external steps that hand a payload on: input, two results."""

    @external_step(compensate=None)
    def first(self) -> str:
        """Return the input."""
        return self.input

    @external_step(compensate=None)
    def second(self) -> str:
        """Return what the first returned."""
        return self.first.result

    @external_step(pivot=True)
    def third(self) -> None:
        """Do nothing."""


class FanOut(Saga[NoopInput], name="bench.fan_out", version=1):
    """One step that does nothing for each of so many items."""

    @external_step(for_each=lambda self: range(self.input.number), compensate=None, concurrency=1000)
    def act(self, item: int) -> int:
        """Return the item."""
        return item
