"""What callers and workers hand to a saga."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from sagas.step import StepRun


class OnExisting(StrEnum):
    """What `start()` does when a saga of that name and key exists."""

    RETURN = "return"  # the same input: give that saga back; another: KeyConflict
    RAISE = "raise"  # KeyConflict in any case
    NEW_IF_COMPENSATED = "new_if_compensated"  # begin another run if the last one was undone


class Missing(StrEnum):
    """What `send()` does when there is no such saga."""

    RAISE = "raise"  # SagaNotFound
    IGNORE = "ignore"  # drop the signal
    KEEP = "keep"  # keep the signal until there is one


class RunContext(Protocol):
    """What a worker tells a step body about the saga it runs for."""

    @property
    def input(self) -> object:
        """The input, decoded."""
        ...

    @property
    def id(self) -> UUID:
        """The saga's id."""
        ...

    @property
    def key(self) -> str | None:
        """The business key given to start()."""
        ...

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of this step or compensation."""
        ...

    @property
    def attempt(self) -> int:
        """1 for the first body."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Trace context and the like, as given to start()."""
        ...

    @property
    def session(self) -> object | None:
        """What the integration gives local steps to write with; raises ConfigurationError elsewhere."""
        ...

    def step_run(self, name: str) -> StepRun[Any]:
        """This saga's run of one of its steps."""
        ...

    def effect(self, name: str, call: Callable[[str], Any], *, returns: Any, request: object = None) -> Any:
        """Have one guarded side effect."""
        ...

    async def aeffect(
        self, name: str, call: Callable[[str], Awaitable[Any]], *, returns: Any, request: object = None
    ) -> Any:
        """The asynchronous twin of `effect`."""
        ...

    @property
    def progress(self) -> object:
        """What an earlier attempt said of how far it had come."""
        ...

    def heartbeat(self, progress: object = None) -> None:
        """Raises LeaseLost when the body may not go on."""
        ...

    async def aheartbeat(self, progress: object = None) -> None:
        """The asynchronous twin of `heartbeat`."""
        ...
