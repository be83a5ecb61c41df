"""Publishing saga messages through a Celery app, never waiting longer than a bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from amqp.exceptions import MessageNacked  # type: ignore[import-untyped]
from celery import Celery
from celery.exceptions import QueueNotFound
from kombu.exceptions import OperationalError

from sagas_celery.checks import NO_QUEUE_NAMED, TASK
from sagas_celery.messages import UNCERTAIN, confirms, routes
from sagas_celery.sender import Sender, at_once
from sagas_outbox.claims import Held
from sagas_outbox.relay import Addressed, UnknownQueue

VERSION = 1  # of the message
TOGETHER = 25  # messages in a round trip


class CeleryPublisher:
    """Publishes with a connection of its own.

    A broker can accept a connection and never answer, and then no option of the client bounds the wait for
    certain. So a thread publishes, and a thread that does not come back in time is left behind with its
    connection.

    Args:
        app: the user's Celery app.
        store: name of the store that the rows are in.
        timeout: seconds one publish may take.
        publishers: who sends plain messages of which scheme; see `sagas_celery.messages.routes`.

    Attributes:
        messages: who sends plain messages.
    """

    def __init__(
        self, app: Celery, store: str, *, timeout: float, publishers: Mapping[str, Any] | None = None
    ) -> None:  # fmt: skip
        self._app, self._store, self._timeout = app, store, timeout
        self.messages = routes(app, timeout=timeout, publishers=publishers)
        self._sender: Sender | None = None

    def publish(self, queue: str, rows: Sequence[Held]) -> None:
        """Publish one message about some rows.

        Raises:
            UnknownQueue: the app lists its queues, and this one is not among them; or RabbitMQ refused the message.
            TimeoutError: the broker did not answer in time; it may still take the message.
            Exception: whatever the client raised.
        """
        self.publish_traced(queue, rows, {})

    def publish_traced(self, queue: str, rows: Sequence[Held], traces: Mapping[int, str]) -> None:
        """The same, with the W3C traceparent of rows, by id, for workers to go on with."""
        [problem] = self.publish_all([(queue, rows, traces)])
        if problem is not None:
            raise problem

    def together(self) -> int:
        """How many messages `publish_all` takes without needing longer than for one."""
        return self._together

    @cached_property
    def _together(self) -> int:
        return at_once(self._app, TOGETHER)

    def publish_all(self, messages: Sequence[Addressed]) -> Sequence[UnknownQueue | None]:
        """Publish several messages: one hand-over to the thread, and one round trip.

        Args:
            messages: queue, rows and traces of each.

        Returns:
            For each why it went nowhere, or None.

        Raises:
            TimeoutError: the broker did not answer in time; it may still take some of them.
            Exception: whatever the client raised; the broker may have taken some of them.
        """
        if self._sender is None:
            self._sender = Sender(self._app, self._timeout, confirms(self._app))
        said = [(queue, message(self._store, rows, traces)) for queue, rows, traces in messages]
        return self._sender.do(partial(_publish_all, self._app, said), self._timeout)

    def reset(self) -> None:
        """Leave the connection behind; the next publish opens another."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()


def message(store: str, rows: Sequence[Held], traces: Mapping[int, str] | None = None) -> dict[str, Any]:
    """What a message says: which rows, each with the token that begins it; where somebody looks at spans also the
    trace of each. Its size does not depend on payloads."""
    said = {"v": VERSION, "store": store, "rows": [list(row) for row in rows]}
    return said | {"traces": {str(row): trace for row, trace in traces.items()}} if traces else said


def _publish_all(
    app: Celery, messages: Sequence[tuple[str, dict[str, Any]]], producer: Any
) -> list[UnknownQueue | None]:  # fmt: skip
    if len(messages) == 1:
        return [_publish(app, queue, body, producer) for queue, body in messages]
    try:
        with producer.batch(max_size=TOGETHER):
            return [_publish(app, queue, body, producer) for queue, body in messages]
    except UNCERTAIN as problem:  # the same as from a message that travels alone
        raise OperationalError(str(problem.__cause__ or problem)) from problem


def _publish(app: Celery, queue: str, body: dict[str, Any], producer: Any) -> UnknownQueue | None:
    target = app.conf.task_default_queue if queue == NO_QUEUE_NAMED else queue
    try:
        app.send_task(
            TASK, kwargs=body, queue=target, producer=producer, serializer="json", ignore_result=True, retry=False,
            expires=None, countdown=None, eta=None, argsrepr="()", kwargsrepr=f"<{len(body['rows'])} rows>",
        )  # fmt: skip
    except QueueNotFound as problem:
        return _closed(f"{problem.args[0]}; add it there, or name another queue in the step", problem)
    except Exception as problem:
        cause = problem.__cause__ if isinstance(problem, OperationalError) else problem
        if isinstance(cause, MessageNacked):
            return _closed("the broker refused a message for it: is the queue full?", problem)
        if isinstance(cause, KeyError):  # of an unknown compression, say: the connection is well
            raise cause from None
        raise
    return None


def _closed(why: str, problem: Exception) -> UnknownQueue:
    closed = UnknownQueue(why)
    closed.__cause__ = problem
    return closed
