"""One thread writes for all that wait: what comes in meanwhile is written together, in the next round."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sagas.store.rows import Delivery

PAUSE = 0.01  # seconds between tries, growing with each
LONGEST_PAUSE = 0.25
LONGEST_LEAD = 1.0  # seconds that a thread writes for others only, while others could

Event = TypeVar("Event")
Then = Callable[[list[Delivery], BaseException | None], None]
Elsewhere = Callable[[Callable[[], None]], object]


@dataclass(slots=True)
class Ticket(Generic[Event]):
    """What one thread waits to have written."""

    happened: list[tuple[Delivery, Event]]
    deadline: float  # when its leases are over
    done: threading.Event = field(default_factory=threading.Event)
    continued: list[Delivery] = field(default_factory=list)
    error: BaseException | None = None
    tries: int = 0
    then: Then | None = None  # instead of a thread that waits
    elsewhere: Elsewhere | None = None  # likewise: has another thread lead
    finished: bool = False
    leads: bool = False  # its thread is to write for everybody from now on

    def finish(self) -> None:
        """Let go whoever waits."""
        self.finished = True
        self.done.set()
        if self.then is not None:
            self.then(self.continued, self.error)


class Line(Generic[Event]):
    """Those who wait.

    Args:
        serve: writes what can be written of some tickets, and returns those that are to be tried again.
    """

    def __init__(self, serve: Callable[[list[Ticket[Event]]], list[Ticket[Event]]]) -> None:
        self._serve = serve
        self._arrived = threading.Condition()
        self._waiting: list[Ticket[Event]] = []
        self._busy = False

    def join(self, ticket: Ticket[Event]) -> None:
        """Have a ticket served by others, or by a thread elsewhere."""
        if self._joins(ticket) and not self._sends(ticket):
            self.lead()

    def wait(self, ticket: Ticket[Event]) -> None:
        """Have a ticket served, and return when it is; in between this thread may write for others too.

        Raises:
            BaseException: what kept it from being served.
        """
        if self._joins(ticket):
            self.lead(ticket)
        ticket.done.wait()
        if ticket.leads:
            self.lead(ticket)
        if ticket.error is not None:
            raise ticket.error

    def _joins(self, ticket: Ticket[Event]) -> bool:
        """Whether nobody leads yet."""
        with self._arrived:
            self._waiting.append(ticket)
            leads, self._busy = not self._busy, True
            self._arrived.notify()
        return leads

    def _sends(self, ticket: Ticket[Event]) -> bool:
        """Whether another thread leads for this ticket, and all others."""
        if ticket.elsewhere is None:
            return False
        try:
            ticket.elsewhere(self.lead)
        except RuntimeError:  # there are no such threads any more: the process ends
            return False
        return True

    def lead(self, own: Ticket[Event] | None = None) -> None:
        """Serve everybody who waits until nobody does.

        Args:
            own: of the calling thread. Some time after that is served another thread that waits takes over: nobody
                keeps up the leases of what this one is to go on with.
        """
        unwritten: list[Ticket[Event]] = []
        until = time.monotonic() + LONGEST_LEAD
        while True:
            with self._arrived:
                if own is not None and own.finished and time.monotonic() > until and self._passes_on(unwritten):
                    return
                if unwritten and not self._waiting:  # nothing hurries: what is left is locked by somebody
                    tries = min(ticket.tries for ticket in unwritten)
                    self._arrived.wait(min(PAUSE * tries, LONGEST_PAUSE))
                tickets, self._waiting = unwritten + self._waiting, []
                if not tickets:
                    self._busy = False
                    return
            try:
                unwritten = self._serve(tickets)
            except BaseException as problem:
                unwritten = []
                for ticket in tickets:
                    ticket.error = problem
                    ticket.finish()

    def _passes_on(self, unwritten: list[Ticket[Event]]) -> bool:
        """Whether another thread leads from now on."""
        waiting, before = unwritten + self._waiting, self._waiting
        if not waiting:
            return False
        self._waiting = waiting
        heir = next((ticket for ticket in waiting if ticket.then is None), None)
        if heir is not None:
            heir.leads = True
            heir.done.set()
        elif not self._sends(waiting[0]):
            self._waiting = before
            return False
        return True
