"""A clock that tests move: a wait of two days takes no time.

Until it is moved, the database clock decides, as in production. Once moved it stands still until it is moved
again, so that what a test sees does not depend on how fast it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sagas import clock as engine
from sagas.errors import SagaError


class Clock:
    """The time that sagas go by in this process.

    Args:
        read: the present time of the database, timezone-aware.
    """

    def __init__(self, read: Callable[[], datetime]) -> None:
        self._read = read
        self._moved_to: datetime | None = None

    def read_from(self, read: Callable[[], datetime]) -> None:
        """Ask another database for the present time, as long as the clock has not been moved."""
        self._read = read

    @property
    def moved(self) -> bool:
        """Whether it stands where a test has put it."""
        return self._moved_to is not None

    def now(self) -> datetime:
        """The time that sagas go by, in UTC."""
        return self._moved_to or self._read().astimezone(UTC)

    def advance(self, by: timedelta) -> datetime:
        """Move it forward; returns the new time.

        Raises:
            SagaError: a negative length; `move_to` goes back.
        """
        if by < timedelta(0):
            raise SagaError(f"clock.advance({by!r}): goes forward only; use clock.move_to(...) to go back")
        return self.move_to(self.now() + by)

    def move_to(self, moment: datetime) -> datetime:
        """Put it to a moment; returns it in UTC.

        Raises:
            SagaError: the moment has no time zone.
        """
        if moment.tzinfo is None:
            raise SagaError(f"clock.move_to({moment!r}): has no time zone; give it one, such as tzinfo=UTC")
        self._moved_to = moment.astimezone(UTC)
        engine.go_by(lambda: self._moved_to)
        return self._moved_to

    def reset(self) -> None:
        """Go by the database clock again."""
        self._moved_to = None
        engine.go_by(None)
