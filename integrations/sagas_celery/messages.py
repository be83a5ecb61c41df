"""Sending plain messages to Celery tasks: the message's id is the task's id, its payload the task's arguments."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from importlib import import_module
from typing import Any, Final

from amqp.exceptions import MessageNacked  # type: ignore[import-untyped]
from celery import Celery
from celery.utils.nodenames import anon_nodename
from kombu import exceptions
from kombu.exceptions import EncodeError, OperationalError
from kombu.utils.json import loads

from sagas.errors import ConfigurationError
from sagas_celery.sender import Sender, at_once
from sagas_outbox.errors import Refused, Unreachable, Unsendable
from sagas_outbox.publishers import Message, MessagePublisher, Outcome, Routes, in_groups, one_by_one
from sagas_outbox.refusals import takes_no_writes

log = logging.getLogger("sagas.relay")

PIPELINE: Final = 200  # messages in one round trip, where the broker's client can do that
MOST_COMMANDS: Final = 10  # for one message: five, for a queue of Redis that expires
CONFIRMING: Final = ("amqp", "amqps", "pyamqp")  # RabbitMQ says that it has a message, if it is asked to
CALL: Final = "call"  # this option says that the payload is {"args": [...], "kwargs": {...}, "headers": {...}}
CODED: Final = "coded"  # and this value of it that all of it is Celery's own JSON, and not only the headers
OF_MESSAGE: Final = (
    "expires", "time_limit", "soft_time_limit", "ignore_result", "shadow", "root_id", "parent_id", "argsrepr",
    "kwargsrepr",
)  # fmt: skip
OF_PUBLISH: Final = ("queue", "exchange", "routing_key", "priority", "compression", "delivery_mode", "exchange_type")
UNCERTAIN: Final = getattr(exceptions, "BatchPublishError", OperationalError)  # from kombu 5.7 on
KNOWN: Final = frozenset((*OF_MESSAGE, *OF_PUBLISH, CALL))


def confirms(app: Celery) -> Mapping[str, Any]:
    """Options of the transport of an app, so that its broker says when it has a message where it can."""
    scheme = str(app.connection_for_write().transport_cls)
    return {"confirm_publish": True} if scheme in CONFIRMING else {}


class CeleryMessages:
    """Sends each message to the Celery task that its destination names, wherever the app routes that.

    Args:
        app: the user's Celery app.
        timeout: seconds that one message may take, or as many as travel in one round trip. A batch begins nothing more
            after half of it.
    """

    shared = True  # all destinations are on one broker, behind one connection

    def __init__(self, app: Celery, *, timeout: float) -> None:
        self._app, self._timeout = app, timeout
        self._sender: Sender | None = None
        self._origin = anon_nodename()
        self._alone = 0  # messages still to be sent one by one, since a round trip failed of which nobody knows how far

    def send(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        """Send messages in order, through one connection, as many in a round trip as the client can.

        Raises:
            Unreachable: the broker cannot be reached, or did not answer in time; it may still take the first.
        """
        _ = self._tasks  # imported before anybody waits for the broker
        send = partial(self._hand_over, set())
        most = 1 if self._alone else self._together
        outcomes = in_groups(messages, send, most=most, seconds=self._timeout / 2)
        self._alone = max(0, self._alone - outcomes.count(None))
        return outcomes

    def _hand_over(self, declared: set[Any], messages: Sequence[Message]) -> Sequence[Outcome]:
        if self._sender is None:
            self._sender = Sender(self._app, self._timeout, self._options)
        try:
            return self._sender.do(partial(self._send, self._sender, declared, messages), self._timeout)
        except (OSError, UNCERTAIN) as problem:  # connection and time limit errors are kinds of the first
            if len(messages) > 1:  # a broker that is nearly full would be given the same messages again and again
                self._alone = PIPELINE
            raise Unreachable(f"{problem}: {problem.__cause__}" if problem.__cause__ else str(problem)) from problem

    def reset(self) -> None:
        """Leave the connection behind; the next batch opens another."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()

    @cached_property
    def _together(self) -> int:
        return at_once(self._app, PIPELINE)

    @cached_property
    def _options(self) -> Mapping[str, Any]:
        return confirms(self._app)

    @cached_property
    def _tasks(self) -> Mapping[str, Any]:
        """The app's tasks: they may say which queue they go to."""
        try:
            self._app.loader.import_default_modules()
        except Exception:
            log.exception(
                "the task modules of Celery app %r cannot be imported; it routes tasks by name", self._app.main
            )
        found: Mapping[str, Any] = self._app.tasks
        return found

    def _send(
        self, sender: Sender, declared: set[Any], messages: Sequence[Message], producer: Any
    ) -> Sequence[Outcome]:  # fmt: skip
        """In the sender's thread."""
        send = partial(self._one, producer, declared)
        if len(messages) == 1:
            return one_by_one(messages, send)
        with producer.batch(max_size=MOST_COMMANDS * len(messages)):  # all of it at the end
            outcomes = one_by_one(messages, send, seconds=self._timeout / 2)
            if sender.given_up:
                raise Unreachable("given up")  # nothing of it is sent
            return outcomes

    def _one(self, producer: Any, declared: set[Any], message: Message) -> None:
        name = message.destination
        try:
            made, options = self._made(message)
        except (TypeError, ValueError) as problem:
            raise _never(name, problem) from problem
        if (place := options.get("queue")) in declared:
            options["declare"] = ()  # once in a batch is enough
        try:
            self._app.amqp.send_task_message(producer, name, made, retry=False, serializer="json", **options)
            declared.add(place)
        except (EncodeError, TypeError, ValueError) as problem:
            raise _never(name, problem) from problem
        except MessageNacked as problem:
            raise Refused("the broker refused it: is the queue full?") from problem
        except KeyError:  # of an unknown compression, say; clients of brokers list it as a connection error
            raise
        except Exception as problem:
            lost = (OperationalError, OSError, *producer.connection.connection_errors)
            if isinstance(problem, lost) or takes_no_writes(problem):
                raise Unreachable(f"the broker cannot be reached, or takes no messages: {problem}") from problem
            raise

    def _made(self, message: Message) -> tuple[Any, dict[str, Any]]:
        """Celery's message, and how to send it. The app's routers are asked, whose errors are no broken connection."""
        name, app = message.destination, self._app
        task = self._tasks.get(name)
        args, kwargs, headers = call_of(message)
        options = {} if task is None else {k: v for k, v in task._get_exec_options().items() if v is not None}
        options |= message.options
        options.pop(CALL, None)
        about = {option: options.pop(option) for option in OF_MESSAGE if option in options}
        about.setdefault("argsrepr", "...")  # no arguments in the logs of workers, nor the time to write them
        about.setdefault("kwargsrepr", "...")
        options.pop("serializer", None)
        routed = app.amqp.router.route(options, name, args, kwargs, task)
        made = app.amqp.create_task_message(
            str(message.id), name, args, kwargs, origin=self._origin,
            create_sent_event=app.conf.task_send_sent_event, **about,
        )  # fmt: skip
        return made, {**routed, "headers": headers}


def _never(name: str, problem: Exception) -> Unsendable:
    return Unsendable(f"cannot be sent to task {name}: {problem}")


def routes(app: Celery, *, timeout: float, publishers: Mapping[str, Any] | None = None) -> Routes:
    """Who sends which messages: Celery those to tasks, and publishers of your own those of their schemes.

    Args:
        app: the Celery app.
        timeout: seconds that one batch for Celery may take.
        publishers: by scheme; each is a `MessagePublisher`, or where it is as "module.attribute".

    Raises:
        ConfigurationError: one of them cannot be found, or is none.
    """
    own = {scheme: _publisher(scheme, given) for scheme, given in (publishers or {}).items()}
    return Routes(CeleryMessages(app, timeout=timeout), own)


def _publisher(scheme: str, given: Any) -> MessagePublisher:
    if not (isinstance(scheme, str) and scheme.isidentifier()):
        raise ConfigurationError(f"publishers: scheme {scheme!r} is no word, such as 'redis'")
    if isinstance(given, str):
        module, _, attribute = given.rpartition(".")
        try:
            given = getattr(import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as problem:
            raise ConfigurationError(f"publishers[{scheme!r}]={given!r} cannot be found: {problem}") from problem
    if not (callable(getattr(given, "send", None)) and callable(getattr(given, "reset", None))):
        raise ConfigurationError(f"publishers[{scheme!r}]={given!r} has no send() and reset(): it is no publisher")
    found: MessagePublisher = given
    return found


def call_of(message: Message) -> tuple[Sequence[Any], Mapping[str, Any], dict[str, Any]]:
    """Arguments, keyword arguments and headers of the task.

    The payload says them: an object has names, a list has none. That of a call has headers too, if they are no texts.
    """
    headers, call = dict(message.headers), message.options.get(CALL)
    payload = _decoded(message.body) if call == CODED else message.payload
    if call == CODED:
        return payload["args"], payload["kwargs"], headers | payload.get("headers", {})
    if call:  # as it was written at first
        headers |= loads(json.dumps(payload.get("headers", {})))  # type: ignore[no-untyped-call]
        return payload["args"], payload["kwargs"], headers
    if isinstance(payload, dict):
        return (), payload, headers
    if isinstance(payload, list):
        return payload, {}, headers
    return (() if payload is None else (payload,)), {}, headers


def _decoded(body: str) -> Any:
    try:
        return loads(body)  # type: ignore[no-untyped-call]
    except Exception:  # of a type that this process does not know: it travels as it is, and the worker decodes it
        return json.loads(body)
