"""Who sends plain messages: the protocol that publishers keep, and which of them serves a destination."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import compress
from typing import Any, Final, Protocol
from uuid import UUID

from sagas_outbox.errors import Refused, Unreachable, Unsendable

SECONDS: Final = 2.5  # after which a batch that is sent one by one ends: what was sent is noted down soon


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A message that is to be sent now."""

    id: UUID  # the same in every try
    destination: str
    body: str  # the payload as JSON text
    key: str | None  # messages of one key are sent in order
    options: Mapping[str, Any]
    headers: Mapping[str, str]
    published_at: datetime

    @property
    def payload(self) -> Any:
        """The payload, decoded."""
        return json.loads(self.body)


Outcome = BaseException | None  # why a message was not sent; None: it was


class MessagePublisher(Protocol):
    """Sends messages somewhere. It is called in a thread of a relay, for one destination at a time.

    What is sent may be sent again: a relay that dies before it noted down that it sent something does not know.
    """

    def send(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        """Send messages, bounded in time: first come first, and of a key none after one that was not sent.

        Returns:
            For each message None, or why it was not sent: `Unsendable` if there is no use in trying again,
            `Unreachable` if its destination takes nothing now, `Behind` if it was not tried.

        Raises:
            Unreachable: nothing can be sent there now; no message is at fault.
            Exception: any; what was sent and what was not is not known.
        """

    def reset(self) -> None:
        """Drop connections after a failure."""


def one_by_one(
    messages: Sequence[Message], send: Callable[[Message], object], *, seconds: float = SECONDS
) -> list[Outcome]:
    """Send messages with a function that sends one of them; an error of it is that message's, and holds up its key.

    Args:
        messages: which, in order.
        send: sends one, bounded in time.
        seconds: after which none is begun; those that are left are claimed again.

    Raises:
        Unreachable: the function said so at its first call. Later, nothing more is tried.
    """

    def alone(group: Sequence[Message]) -> Sequence[Outcome]:
        try:
            send(group[0])
        except Exception as problem:
            if isinstance(problem, Unreachable) and not isinstance(problem, Refused):
                raise
            return [problem]
        return [None]

    return in_groups(messages, alone, most=1, seconds=seconds)


def in_groups(
    messages: Sequence[Message], send: Callable[[Sequence[Message]], Sequence[Outcome]], *, most: int, seconds: float
) -> list[Outcome]:
    """Send messages with a function that sends a few of them; what was sent is known, whatever comes after it.

    Args:
        messages: which, in order.
        send: sends one group, bounded in time, and returns what came of each.
        most: messages in a group.
        seconds: after which no group is begun.

    Raises:
        Unreachable: the function said so at its first call. Later, nothing more is tried.
    """
    until, outcomes = time.monotonic() + seconds, list[Outcome]()
    keys, shut = set[str | None](), set[str]()  # that wait: a message of theirs was not sent
    for start in range(0, len(messages), most):
        if start and time.monotonic() >= until:
            break
        group = messages[start : start + most]
        free = [each.key not in keys and each.destination not in shut for each in group]
        try:
            came = iter(send(list(compress(group, free))) if any(free) else ())
        except Unreachable as problem:
            if all(isinstance(outcome, Behind) for outcome in outcomes):
                raise
            outcomes += [problem if may else Behind() for may in free]
            break
        for message, may in zip(group, free, strict=True):
            outcomes.append(outcome := next(came) if may else Behind())
            if outcome is not None and message.key is not None:
                keys.add(message.key)
            if isinstance(outcome, Refused):
                shut.add(message.destination)
    return outcomes + [Behind() for _ in messages[len(outcomes) :]]


class Behind(Exception):
    """Not tried: an earlier message of its key was not sent, or time was up."""


class Routes:
    """Which publisher serves a destination: `scheme:address` goes to the one of its scheme, all else to the default.

    Args:
        default: for what names no scheme, such as Celery's tasks; None: nobody sends those.
        by_scheme: for the others.
    """

    def __init__(
        self, default: MessagePublisher | None = None, by_scheme: Mapping[str, MessagePublisher] | None = None
    ) -> None:
        self._default, self._by_scheme = default, dict(by_scheme or {})

    def publisher(self, destination: str) -> MessagePublisher:
        """Who serves it.

        Raises:
            Unsendable: nobody does.
        """
        scheme, colon, _ = destination.partition(":")
        found = self._by_scheme.get(scheme) if colon else self._default
        if found is None:
            known = ", ".join(sorted(self._by_scheme)) or "none"
            wanted = f"scheme {scheme!r}" if colon else "Celery tasks"
            raise Unsendable(f"this relay has no publisher for {wanted}; known schemes: {known}")
        return found

    def lane(self, destination: str) -> object:
        """What is sent one after the other: a publisher that says `shared = True`, else each destination by itself."""
        publisher = self.publisher(destination)
        return publisher if getattr(publisher, "shared", False) else destination
