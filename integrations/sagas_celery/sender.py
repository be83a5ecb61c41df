"""A thread with a connection to the broker, which nobody has to wait for longer than a bound."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from celery import Celery
from kombu.exceptions import OperationalError

T = TypeVar("T")

AT_ONCE = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}  # the relay tries again


def at_once(app: Celery, most: int) -> int:
    """How many messages an app's broker takes in one round trip: `most`, or one.

    That takes Redis, kombu 5.7, and transport options with which its client does not try again by itself.
    """
    return most if getattr(app.connection_for_write().transport, "supports_batch_publish", False) else 1


class Sender:
    """A thread with a connection to the broker, for one piece of work at a time.

    Once it did not answer in time it is given up: nobody knows what it still does, and it begins nothing more.

    Args:
        app: the user's Celery app.
        timeout: seconds to connect.
        options: of the transport, beside the app's own and time limits.
    """

    def __init__(self, app: Celery, timeout: float, options: Mapping[str, Any] | None = None) -> None:
        self._app, self._timeout, self._options = app, timeout, dict(options or {})
        self._asked, self._answered = threading.Event(), threading.Event()
        self._work: Callable[[Any], Any] | None = None
        self._answer: Any = None
        self._error: BaseException | None = None
        self.given_up = False
        threading.Thread(target=self._run, name="sagas-publish", daemon=True).start()

    def do(self, work: Callable[[Any], T], timeout: float) -> T:
        """Give the thread's producer to a function, and return what that returns.

        Raises:
            TimeoutError: it did not come back within `timeout` seconds.
            Exception: whatever it raised.
        """
        self._work, self._error = work, None
        self._answered.clear()
        self._asked.set()
        if not self._answered.wait(timeout):
            self.close()
            broker = self._app.connection_for_write().as_uri()  # without its password
            raise TimeoutError(f"the broker at {broker} did not take a message within {timeout} s")
        if self._error is not None:
            raise self._error
        answer: T = self._answer
        return answer

    def close(self) -> None:
        """Let the thread end."""
        self.given_up = True
        self._asked.set()

    def _run(self) -> None:
        connection = self._app.connection_for_write(connect_timeout=self._timeout)
        connection.transport_options = {
            "socket_timeout": self._timeout, "socket_connect_timeout": self._timeout, **self._options,
            **connection.transport_options, **AT_ONCE,
        }  # fmt: skip
        try:
            with connection, self._app.amqp.Producer(connection, auto_declare=False) as producer:
                while self._asked.wait() and not self.given_up:
                    self._asked.clear()
                    assert self._work is not None
                    self._try(producer, self._work)
        except BaseException as problem:  # a thread has nobody else to tell
            self._error = problem
            self._answered.set()

    def _try(self, producer: Any, work: Callable[[Any], Any]) -> None:
        try:
            self._connect(producer)
            if self.given_up:
                return
            self._answer = work(producer)
        except OperationalError as problem:
            self._error = self._unreachable(problem)
        except Exception as problem:
            self._error = problem
        self._answered.set()

    def _connect(self, producer: Any) -> None:
        try:
            _ = producer.channel  # connects, which may take long
        except Exception as problem:
            raise self._unreachable(problem) from problem

    def _unreachable(self, problem: Exception) -> ConnectionError:
        broker = self._app.connection_for_write().as_uri()
        return ConnectionError(f"the broker at {broker} cannot be reached, is it running? {problem}")
