"""Sagas with `async def` bodies, for the Celery workers; the other side is `tests.support.slow_server`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sagas import Retry, Saga, external_step, step
from tests.support.slow_server import call

OFTEN = Retry(max_attempts=20, first=0.2, factor=1.2, longest=0.5)


@dataclass(frozen=True)
class Asked:
    """What one saga is to do.

    Attributes:
        port: of the server.
        wait: seconds until it answers, or "gate".
        stubborn: whether the body does not heed that it is cancelled, the first time.
    """

    port: int
    wait: float | str
    stubborn: bool = False


class Awaited(Saga[Asked], name="relay.awaited", version=1):
    """A slow call, and a local step after it."""

    @external_step(queue="quick", compensate=None, retry=OFTEN, timeout=30, max_deliveries=20)
    async def charge(self) -> str:
        return await call(self.input.port, str(self.key), self.input.wait)

    @step(queue="quick", compensate=None)
    def note(self) -> str:
        return self.charge.result


class Stubborn(Saga[Asked], name="relay.stubborn", version=1):
    """A body that goes on when it is cancelled."""

    @external_step(queue="quick", compensate=None, retry=OFTEN, timeout=0.2, max_deliveries=20)
    async def charge(self) -> str:
        said = ""
        while not said:
            try:
                said = await call(self.input.port, str(self.key), "0" if self.attempt > 1 else self.input.wait)
            except asyncio.CancelledError:
                continue
        return said
