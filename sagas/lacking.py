"""What is said of sagas whose version a worker lacks: a rollout is nothing wrong, so it is said now and then."""

from __future__ import annotations

import logging
from time import monotonic
from typing import Final
from uuid import UUID

log = logging.getLogger("sagas.worker")

EVERY: Final = 300.0  # seconds between two lines about one name and version
MOST: Final = 10_000  # sagas that are counted for one line


class Lacking:
    """Which names and versions one worker was given work of without having them, and when that was last said."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], set[UUID]] = {}  # since the last line
        self._problem: dict[tuple[str, int], str] = {}
        self._said: dict[tuple[str, int], float] = {}

    def note(self, name: str, version: int, saga: UUID, problem: str) -> None:
        """A saga has to wait for another worker.

        Args:
            name: of the saga.
            version: of the saga.
            saga: its id.
            problem: what is the matter, and what helps.
        """
        self._problem[name, version] = problem
        waiting = self._waiting.setdefault((name, version), set())
        if len(waiting) < MOST:
            waiting.add(saga)

    def say(self) -> None:
        """Write a line about each name and version of which none was written lately, with how many sagas wait."""
        now = monotonic()
        for place, sagas in list(self._waiting.items()):
            if now - self._said.get(place, now - EVERY) < EVERY:
                continue
            self._said[place] = now
            self._waiting.pop(place, None)
            many = "1 saga" if len(sagas) == 1 else f"{len(sagas)} sagas" + " or more" * (len(sagas) == MOST)
            log.warning(
                "%s of %s version %d left to a worker that has it, such as %s: %s",
                many, *place, next(iter(sagas)), self._problem[place],
            )  # fmt: skip
