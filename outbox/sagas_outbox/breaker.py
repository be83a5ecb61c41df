"""A breaker for each destination, so that one that is broken delays only itself.

It is this process's own opinion, kept in memory: what one relay cannot reach another one may, and a statement for
every opinion would cost more than the one message with which each relay tries a broken destination now and then. When
a message may be tried again is stored with the message, for all relays.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

OPENS_AFTER = 3  # batches in a row of which nothing was sent
FIRST_PAUSE = 0.5  # seconds
LONGEST_PAUSE = 30.0
MOST = 10_000  # messages at a time, of a destination that sends all it is given


@dataclass(slots=True)
class Breaker:
    """What is known about one destination."""

    failures: int = 0  # batches in a row
    shut_until: float = 0.0
    size: int = MOST  # messages at a time: what it sends in the time of one batch, as far as that is known

    def room(self, most: int) -> int:
        """How many messages to take for it now: as many as there is room for, one for a try, or none."""
        if self.failures < OPENS_AFTER:
            return min(most, self.size)
        return 1 if time.monotonic() >= self.shut_until else 0

    def sent(self) -> bool:
        """Something was sent; returns whether that is news. The next batch may be half as large again."""
        self.size = min(MOST, self.size + self.size // 2 + 1)
        news, self.failures = self.failures >= OPENS_AFTER, 0
        return news

    def cut(self, tried: int) -> None:
        """No more than so many of a batch were tried."""
        self.size = min(self.size, max(1, tried))

    def pause(self) -> float:
        """Seconds until it is tried again."""
        return max(0.0, self.shut_until - time.monotonic())

    def failed(self, *, surely: bool) -> float:
        """Nothing of a batch was sent.

        Args:
            surely: the destination cannot be reached, so that there is no need to see more of it.

        Returns:
            Seconds until it is tried again.
        """
        self.failures = max(self.failures + 1, OPENS_AFTER if surely else 0)
        if self.failures < OPENS_AFTER:
            return 0.0
        self.size = 1  # a batch that is too large for its destination fails as a whole
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self.failures - OPENS_AFTER, 10))
        self.shut_until = time.monotonic() + pause
        return pause
