"""Publishing plain messages: rows of the caller's own transaction, which relays send after its commit.

`publish` and its asynchronous twin `apublish` write one message, `publish_many` and `apublish_many` any number of them
in one statement. Nothing here commits, opens a transaction, or waits for a relay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

import msgspec
import uuid_utils.compat as uuid_utils

from sagas_outbox import clock
from sagas_outbox.calling import Caller, Work, caller
from sagas_outbox.encoding import MOST_HEADERS, briefly, encode, text
from sagas_outbox.errors import InvalidMessage, NotPublished
from sagas_outbox.queries import query

PACKAGE = "sagas_outbox"
EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)  # what the table takes, and a day less
LATEST = datetime(8999, 12, 31, tzinfo=UTC)
LONGEST = timedelta(days=365_000)


@runtime_checkable
class Named(Protocol):
    """What a task is known by, such as a Celery task."""

    name: str


def _new_id() -> UUID:
    return uuid_utils.uuid7()


@dataclass(frozen=True, kw_only=True, slots=True)
class NewMessage:
    """A message to be published."""

    destination: (
        str | Named
    )  # the name of a Celery task, the task itself, or `scheme:address` of a publisher of your own
    payload: Any = (
        None  # for a task: an object is its keyword arguments, a list its arguments, anything else the only one
    )
    ordering_key: str | None = None  # messages of one key are sent in the order in which they were published
    due_at: datetime | timedelta | None = None  # not to be sent before; None: at once
    queue: str | None = None  # of the broker; None: wherever the app routes the task to
    headers: Mapping[str, str] | None = None  # such as traceparent; the receiver sees them
    options: Mapping[str, Any] | None = None  # of the publisher, such as priority= of Celery
    message_id: UUID = field(default_factory=_new_id)  # what receivers know it by; for a Celery task its id


def publish(
    destination: str | Named,
    payload: Any = None,
    *,
    ordering_key: str | None = None,
    due_at: datetime | timedelta | None = None,
    queue: str | None = None,
    headers: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    using: Any = None,
    own_transaction: bool = False,
) -> UUID:
    """Publish a message in the caller's transaction: it is sent if that commits, and never if it does not.

    Args:
        destination: a Celery task or its name, or `scheme:address` for a publisher of your own.
        payload: what can be written as JSON. A task gets an object (a dict, a dataclass) as keyword arguments, a list
            or tuple as arguments, None as nothing, and anything else as its only argument.
        ordering_key: messages of one key are sent one after the other, in the order in which they were published.
        due_at: not to be sent before this moment, or for so long.
        queue: of the broker; None: wherever the Celery app routes the task to.
        headers: texts that travel along, such as traceparent.
        options: for the publisher; Celery takes `priority`, `expires`, `time_limit` and the like.
        using: a Django alias, a session or connection of SQLAlchemy, or a connection of psycopg 3.
        own_transaction: there is no business change that this message belongs to, so that no transaction need be open.

    Returns:
        The message's id: what its receiver knows it by, and for a Celery task its task id.

    Raises:
        NotPublished: no transaction is open.
        InvalidMessage: something cannot be stored.
        UnknownConnection: `using` is nothing that can be written on.
    """
    message = NewMessage(
        destination=destination, payload=payload, ordering_key=ordering_key, due_at=due_at, queue=queue,
        headers=headers, options=options,
    )  # fmt: skip
    (id,) = publish_many([message], using=using, own_transaction=own_transaction)
    return id


async def apublish(
    destination: str | Named,
    payload: Any = None,
    *,
    ordering_key: str | None = None,
    due_at: datetime | timedelta | None = None,
    queue: str | None = None,
    headers: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    using: Any = None,
    own_transaction: bool = False,
) -> UUID:
    """The asynchronous twin of `publish`, for async sessions and connections and for async code of Django."""
    message = NewMessage(
        destination=destination, payload=payload, ordering_key=ordering_key, due_at=due_at, queue=queue,
        headers=headers, options=options,
    )  # fmt: skip
    (id,) = await apublish_many([message], using=using, own_transaction=own_transaction)
    return id


def publish_many(messages: Iterable[NewMessage], *, using: Any = None, own_transaction: bool = False) -> list[UUID]:
    """Publish messages in one statement, in the order in which they are given.

    Args:
        messages: they.
        using: see `publish`.
        own_transaction: see `publish`.

    Returns:
        The id of each.

    Raises:
        NotPublished: no transaction is open.
        InvalidMessage: something in one of them cannot be stored; none is published.
    """
    found = caller(using, call="publish", asynchronous=False)
    return found.run(_publishing(found, list(messages), own_transaction))


async def apublish_many(
    messages: Iterable[NewMessage], *, using: Any = None, own_transaction: bool = False
) -> list[UUID]:
    """The asynchronous twin of `publish_many`."""
    found = caller(using, call="publish", asynchronous=True)
    return await found.arun(_publishing(found, list(messages), own_transaction))


def _publishing(caller: Caller, messages: list[NewMessage], own_transaction: bool) -> Work[list[UUID]]:
    if not own_transaction and not caller.in_transaction():
        raise NotPublished(
            f"publish(): no transaction is open on {caller.name}, so the business change and the message could part; "
            f"call it inside one, or pass own_transaction=True when there is no business change"
        )
    if messages:
        request: dict[str, Any] = {"messages": [_line(message) for message in messages]}
        if (now := clock.now()) is not None:
            request["now"] = now
        yield query(PACKAGE, "publish"), msgspec.json.encode(request).decode()
        caller.wake_after_commit()
    return [message.message_id for message in messages]


def _line(message: NewMessage) -> dict[str, Any]:
    if not isinstance(message, NewMessage):
        raise InvalidMessage(f"messages: {briefly(message)} is no NewMessage")
    name = message.destination if isinstance(message.destination, str) else getattr(message.destination, "name", None)
    if ":" in str(name) and name is not message.destination:
        raise InvalidMessage(
            f"destination: task {name} has a colon in its name, so that it would be taken for scheme:address"
        )
    if message.queue is not None and ":" in str(name):
        raise InvalidMessage(f"queue={briefly(message.queue)}: only Celery tasks have a queue, {name} is none")
    for given, mapping in (("options", message.options), ("headers", message.headers)):
        if mapping is not None and not isinstance(mapping, Mapping):
            raise InvalidMessage(f"{given}={briefly(mapping)}: a dict, or none")
    if not isinstance(message.message_id, UUID):
        raise InvalidMessage(f"message_id={briefly(message.message_id)}: a UUID")
    options = dict(message.options or {}) | ({} if message.queue is None else {"queue": text(message.queue, "queue")})
    line: dict[str, Any] = {
        "id": str(message.message_id), "destination": text(name, "destination"),
        "payload": encode(message.payload, "payload"),
    }  # fmt: skip
    if message.ordering_key is not None:
        line["key"] = text(message.ordering_key, "ordering_key")
    if options:
        line["options"] = encode(options, "options", most=MOST_HEADERS)
    if message.headers:
        for header, value in message.headers.items():
            if not (isinstance(header, str) and isinstance(value, str)):
                raise InvalidMessage(f"headers[{briefly(header)}]={briefly(value)}: names and values are texts")
        line["headers"] = encode(dict(message.headers), "headers", most=MOST_HEADERS)
    return line | _due(message.due_at)


def _due(due_at: datetime | timedelta | None) -> dict[str, Any]:
    if due_at is None:
        return {}
    if isinstance(due_at, timedelta):  # by the database clock
        if due_at > LONGEST:
            raise InvalidMessage(f"due_at={briefly(due_at)}: at most {LONGEST.days:,} days")
        return {"delay": max(0.0, due_at.total_seconds())}
    if not isinstance(due_at, datetime) or due_at.tzinfo is None:
        raise InvalidMessage(f"due_at={briefly(due_at)}: a datetime with a time zone, or a timedelta")
    if not EARLIEST <= due_at < LATEST:
        raise InvalidMessage(f"due_at={due_at}: from {EARLIEST:%Y} to {LATEST:%Y}")
    return {"due_at": due_at}
