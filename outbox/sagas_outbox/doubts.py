"""Queues of which a message was not taken lately, so that one that cannot be published to does not stop the others.

A broker may refuse one queue only: its key in Redis holds something else, RabbitMQ has it with other arguments, the
user may not write to it. What such a message is published together with is not taken either, and nobody says which
one it was. So queues in doubt come last, each message alone, those that have failed alone most often at the very end.
One that was refused while the broker took others is left alone for a while, and then tried with one row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile
from typing import TypeVar

M = TypeVar("M")
Message = tuple[str, M]  # its queue, and what is in it


class Doubts:
    """What one relay knows of its queues."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}  # by queue: how often a message that was alone was not taken
        self._rests: dict[str, float] = {}  # by queue that was refused: until when it is left alone

    def last(self, messages: Iterable[Message[M]]) -> list[Message[M]]:
        """Messages in order, but those for queues in doubt at the end."""
        return sorted(messages, key=lambda message: self._failures.get(message[0], -1))

    def first(self, messages: Sequence[Message[M]], most: int) -> Sequence[Message[M]]:
        """Those that are published next: at most so many, and one alone if there is doubt about its queue."""
        return list(takewhile(lambda message: message[0] not in self._failures, messages[:most])) or messages[:1]

    def not_taken(self, queues: Collection[str]) -> None:
        """Messages for these queues, which were published together, were not taken, or nobody knows."""
        for queue in queues:
            self._failures[queue] = self._failures.get(queue, 0) + (len(queues) == 1)

    def refused(self, queue: str, until: float) -> None:
        """A message for this queue was not taken, though the broker is well; it is left alone until then."""
        self.not_taken([queue])
        self._rests[queue] = until

    def rests(self, queue: str, now: float) -> bool:
        """Whether a queue is to be left alone, now."""
        return queue in self._rests and now < self._rests[queue]

    def room(self, queue: str, rows: int) -> int:
        """How many of so many rows to publish to a queue: one, if that is to find out whether it takes any."""
        return min(rows, 1) if queue in self._rests else rows

    def taken(self, queue: str) -> None:
        """A message for this queue was."""
        self._failures.pop(queue, None)
        self._rests.pop(queue, None)
