"""Sending plain messages to Celery tasks: the message's id is the task's id, its payload the task's arguments."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from importlib import import_module
from typing import Any, Final

from celery import Celery
from celery.exceptions import QueueNotFound
from celery.utils.nodenames import anon_nodename
from kombu import exceptions
from kombu.exceptions import EncodeError, OperationalError

from sagas.errors import ConfigurationError
from sagas_celery.sender import Sender
from sagas_outbox.errors import Unreachable, Unsendable
from sagas_outbox.publishers import Message, MessagePublisher, Outcome, Routes, one_by_one

log = logging.getLogger("sagas.relay")

PIPELINE: Final = 200  # messages in one round trip, where the broker's client can do that
CONFIRMING: Final = ("amqp", "amqps", "pyamqp")  # RabbitMQ says that it has a message, if it is asked to
CALL: Final = "call"  # this option says that the payload is {"args": [...], "kwargs": {...}}
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
        timeout: seconds that one batch may take.
    """

    shared = True  # all destinations are on one broker, behind one connection

    def __init__(self, app: Celery, *, timeout: float) -> None:
        self._app, self._timeout = app, timeout
        self._sender: Sender | None = None
        self._origin = anon_nodename()

    def send(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        """Send messages in order, through one connection, as many in a round trip as the client can.

        Raises:
            Unreachable: the broker cannot be reached, or did not answer in time; it may still take them.
        """
        if self._sender is None:
            self._sender = Sender(self._app, self._timeout, self._options)
        try:
            return self._sender.do(partial(self._send, messages), self._timeout)
        except (OSError, UNCERTAIN) as problem:  # connection and time limit errors are kinds of the first
            raise Unreachable(str(problem)) from problem

    def reset(self) -> None:
        """Leave the connection behind; the next batch opens another."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()

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

    def _send(self, messages: Sequence[Message], producer: Any) -> Sequence[Outcome]:
        send = partial(self._one, producer, set())
        if not hasattr(producer, "batch"):  # kombu before 5.7
            return one_by_one(messages, send)
        with producer.batch(max_size=PIPELINE):
            return one_by_one(messages, send)

    def _one(self, producer: Any, declared: set[Any], message: Message) -> None:
        name, app = message.destination, self._app
        task = self._tasks.get(name)
        args, kwargs = arguments(message)
        options = {} if task is None else {k: v for k, v in task._get_exec_options().items() if v is not None}
        options |= message.options
        options.pop(CALL, None)
        about = {option: options.pop(option) for option in OF_MESSAGE if option in options}
        about.setdefault("argsrepr", "...")  # no arguments in the logs of workers, nor the time to write them
        about.setdefault("kwargsrepr", "...")
        options.pop("serializer", None)
        try:
            routed = app.amqp.router.route(options, name, args, kwargs, task)
            made = app.amqp.create_task_message(
                str(message.id), name, args, kwargs, origin=self._origin,
                create_sent_event=app.conf.task_send_sent_event, **about,
            )  # fmt: skip
            if (place := routed.get("queue")) in declared:
                routed["declare"] = ()  # once in a batch is enough
            app.amqp.send_task_message(
                producer, name, made, headers=dict(message.headers), retry=False, serializer="json", **routed
            )
            declared.add(place)
        except QueueNotFound:  # a KeyError, which clients of brokers count among their connection errors
            raise
        except (EncodeError, TypeError, ValueError) as problem:
            raise Unsendable(f"cannot be sent to task {name}: {problem}") from problem
        except (OperationalError, OSError, UNCERTAIN, *producer.connection.connection_errors) as problem:
            raise Unreachable(f"the broker cannot be reached: {problem}") from problem


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


def arguments(message: Message) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Arguments and keyword arguments of the task, as the payload says: an object has names, a list has none."""
    payload = message.payload
    if message.options.get(CALL):
        return payload["args"], payload["kwargs"]
    if isinstance(payload, dict):
        return (), payload
    if isinstance(payload, list):
        return payload, {}
    return (() if payload is None else (payload,)), {}
