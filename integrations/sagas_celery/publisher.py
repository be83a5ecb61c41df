"""Publishing saga messages through a Celery app, never waiting longer than a bound."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from celery import Celery
from celery.exceptions import QueueNotFound
from kombu.exceptions import OperationalError

from sagas_celery.checks import TASK
from sagas_outbox.claims import Held
from sagas_outbox.relay import UnknownQueue

VERSION = 1  # of the message
AT_ONCE = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}  # the relay tries again
NO_QUEUE_NAMED = "default"  # the queue of steps that name none: whichever the app's workers serve without -Q


class CeleryPublisher:
    """Publishes with a connection of its own.

    A broker can accept a connection and never answer, and then no option of the client bounds the wait for
    certain. So a thread publishes, and a thread that does not come back in time is left behind with its
    connection.

    Args:
        app: the user's Celery app.
        store: name of the store that the rows are in.
        timeout: seconds one publish may take.
    """

    def __init__(self, app: Celery, store: str, *, timeout: float) -> None:
        self._app, self._store, self._timeout = app, store, timeout
        self._sender: _Sender | None = None

    def publish(self, queue: str, rows: Sequence[Held]) -> None:
        """Publish one message about some rows.

        Raises:
            UnknownQueue: the app lists its queues, and this one is not among them.
            TimeoutError: the broker did not answer in time; it may still take the message.
            Exception: whatever the client raised.
        """
        if self._sender is None:
            self._sender = _Sender(self._app, self._timeout)
        self._sender.send(queue, message(self._store, rows), self._timeout)

    def reset(self) -> None:
        """Leave the connection behind; the next publish opens another."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()


def message(store: str, rows: Sequence[Held]) -> dict[str, Any]:
    """What a message says: which rows, each with the token that begins it. Its size does not depend on payloads."""
    return {"v": VERSION, "store": store, "rows": [list(row) for row in rows]}


class _Sender:
    """A thread with a connection, for one message at a time."""

    def __init__(self, app: Celery, timeout: float) -> None:
        self._app, self._timeout = app, timeout
        self._asked, self._answered = threading.Event(), threading.Event()
        self._work: tuple[str, dict[str, Any]] | None = None
        self._error: BaseException | None = None
        self._closed = False
        threading.Thread(target=self._run, name="sagas-publish", daemon=True).start()

    def send(self, queue: str, body: dict[str, Any], timeout: float) -> None:
        self._work, self._error = (queue, body), None
        self._answered.clear()
        self._asked.set()
        if not self._answered.wait(timeout):
            broker = self._app.connection_for_write().as_uri()  # without its password
            raise TimeoutError(f"the broker at {broker} did not take a message within {timeout} s")
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._closed = True
        self._asked.set()

    def _run(self) -> None:
        connection = self._app.connection_for_write(connect_timeout=self._timeout)
        connection.transport_options = {
            "socket_timeout": self._timeout, "socket_connect_timeout": self._timeout, **connection.transport_options,
            **AT_ONCE,
        }  # fmt: skip
        try:
            with connection, self._app.amqp.Producer(connection, auto_declare=False) as producer:
                while self._asked.wait() and not self._closed:
                    self._asked.clear()
                    assert self._work is not None
                    self._try(producer, *self._work)
        except BaseException as problem:  # a thread has nobody else to tell
            self._error = problem
            self._answered.set()

    def _try(self, producer: Any, queue: str, body: dict[str, Any]) -> None:
        try:
            target = self._app.conf.task_default_queue if queue == NO_QUEUE_NAMED else queue
            self._app.send_task(
                TASK, kwargs=body, queue=target, producer=producer, serializer="json", ignore_result=True, retry=False,
                expires=None, countdown=None, eta=None, argsrepr="()", kwargsrepr=f"<{len(body['rows'])} rows>",
            )  # fmt: skip
        except QueueNotFound as problem:
            self._error = UnknownQueue(f"{problem.args[0]}; add it there, or name another queue in the step")
        except OperationalError as problem:
            broker = self._app.connection_for_write().as_uri()
            self._error = ConnectionError(f"the broker at {broker} cannot be reached, is it running? {problem}")
        except Exception as problem:
            self._error = problem
        self._answered.set()
