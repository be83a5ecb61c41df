"""A relay that is driven pass by pass, as fast as a test can."""

from __future__ import annotations

from collections import UserDict

from sagas_outbox.flight import Flight
from sagas_outbox.relay import Relay
from sagas_outbox.scan import Marks


class Attentive(Marks):
    """Looks from the beginning each time, as if time passed between two passes."""

    def full_scan_due(self) -> bool:
        self.partial = False
        return True


class Wide(Flight):
    """A window in rows alone: as if workers began at once whatever is published."""

    def free(self) -> float:
        return 3600.0


class WideFlights(UserDict[str, Flight]):
    """One such window for each queue."""

    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self.numbers = relay.settings

    def __contains__(self, queue: object) -> bool:
        return True

    def __missing__(self, queue: str) -> Flight:
        numbers = self.numbers
        self.data[queue] = Wide(numbers.in_flight, numbers.publish_window, numbers.message_work)
        return self.data[queue]


def attentive(relay: Relay) -> Relay:
    """The relay, which now finds a saga name that it has not seen at once, and not a quarter of a second later, and
    publishes what fits into its window in rows although nobody begins it."""
    relay._marks = Attentive()
    relay._flights = WideFlights(relay)  # type: ignore[assignment]
    return relay
