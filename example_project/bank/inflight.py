"""What the bank is processing right now, numbered by arrival; waiting, holding and releasing.

Every wait ends by itself after the bank's longest wait, and at once when the bank stops.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True, slots=True)
class Arrival:
    """One request under way."""

    number: int  # 1, 2, 3 … in order of arrival
    kind: str
    order: str
    key: str
    client: str  # what the caller says it is: its process id
    since: float = field(default_factory=time.monotonic)
    doing: str = "working"  # or the name of the fault that it waits in
    landed: bool = False  # the effect took place, only the answer is outstanding
    freed: threading.Event = field(default_factory=threading.Event)


class InFlight:
    """The register of requests under way.

    Args:
        longest_wait: seconds after which any wait ends.
    """

    def __init__(self, *, longest_wait: float) -> None:
        self._longest_wait = longest_wait
        self._lock = threading.Lock()
        self._arrivals: dict[int, Arrival] = {}
        self._arrived = 0

    @contextmanager
    def arrive(self, *, kind: str, order: str, key: str, client: str) -> Iterator[Arrival]:
        """Register a request for as long as it is processed."""
        with self._lock:
            self._arrived += 1
            arrival = Arrival(number=self._arrived, kind=kind, order=order, key=key, client=client)
            self._arrivals[arrival.number] = arrival
        try:
            yield arrival
        finally:
            with self._lock:
                del self._arrivals[arrival.number]

    def wait(self, arrival: Arrival, doing: str, seconds: float | None = None) -> None:
        """Let a request wait for some seconds, or until it is released."""
        arrival.doing = doing
        arrival.freed.wait(min(self._longest_wait, self._longest_wait if seconds is None else seconds))
        arrival.doing = "working"

    def release(self, *, number: int | None = None, order: str | None = None) -> list[int]:
        """Let waiting requests go on: one by arrival number, those of an order, or all.

        Returns:
            The arrival numbers that were released.
        """
        with self._lock:
            chosen = [
                arrival
                for arrival in self._arrivals.values()
                if arrival.doing != "working" and number in (None, arrival.number) and order in (None, arrival.order)
            ]
        for arrival in chosen:
            arrival.freed.set()
        return [arrival.number for arrival in chosen]

    def has_charge(self, key: str) -> bool:
        """Whether a charge under this key may still take effect."""
        with self._lock:
            return any(a.kind == "charge" and a.key == key and not a.landed for a in self._arrivals.values())

    def report(self) -> list[dict[str, Any]]:
        """Requests under way in order of arrival."""
        now = time.monotonic()
        with self._lock:
            return [
                {
                    "arrival": arrival.number,
                    "kind": arrival.kind,
                    "order": arrival.order,
                    "key": arrival.key,
                    "client": arrival.client,
                    "doing": arrival.doing,
                    "landed": arrival.landed,
                    "seconds": round(now - arrival.since, 3),
                }
                for arrival in self._arrivals.values()
            ]
