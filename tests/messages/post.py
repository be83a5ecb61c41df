"""A publisher that notes down what it sends, and refuses what it is told to; and messengers that a test drives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, TypeVar

import psycopg
from celery import Celery

from sagas.settings import Settings
from sagas_outbox import Message, MessagePublisher, Routes, one_by_one
from sagas_outbox.messenger import Messenger

PATIENCE = 60.0  # seconds that any wait may take, on a machine that has much else to do

T = TypeVar("T")

made: list[Messenger] = []  # of one test, which is closed by a fixture


def wait_until(look: Callable[[], T], what: str, timeout: float = PATIENCE) -> T:
    """Look again and again until there is something to see, and return it.

    Raises:
        AssertionError: there was nothing within `timeout` seconds.
    """
    deadline = monotonic() + timeout
    while not (seen := look()):
        assert monotonic() < deadline, f"not within {timeout:g} s: {what}"
        sleep(0.01)
    return seen


@dataclass
class Post:
    """What was sent, and what cannot be."""

    sent: list[Message] = field(default_factory=list)
    broken: dict[str, Exception] = field(default_factory=dict)  # destinations and single payloads, by their JSON
    down: set[str] = field(default_factory=set)  # destinations where `send` itself raises
    gates: dict[str, threading.Event] = field(default_factory=dict)  # destinations that do not answer until it is set
    tries: list[str] = field(default_factory=list)  # destinations, one for each batch
    shared: bool = False

    def send(self, messages: Sequence[Message]) -> Sequence[BaseException | None]:
        destination = messages[0].destination
        self.tries.append(destination)
        if destination in self.gates:
            self.gates[destination].wait(PATIENCE)
        if destination in self.down:
            raise self.broken.get(destination, RuntimeError("down"))
        return one_by_one(messages, self._one)

    def _one(self, message: Message) -> None:
        for name in (message.destination, message.body):
            if name in self.broken:
                raise self.broken[name]
        self.sent.append(message)

    def reset(self) -> None: ...

    def payloads(self, destination: str | None = None) -> list[Any]:
        """What was sent, in order."""
        return [each.payload for each in self.sent if destination in (None, each.destination)]


@dataclass
class Slow:
    """A broker that takes its time for each message, as far as a Celery app can tell."""

    seconds: float = 0.0
    sent: list[str] = field(default_factory=list)  # ids, in order
    gates: dict[int, threading.Event] = field(default_factory=dict)  # the n-th message waits for it

    def app(self) -> Celery:
        """An app whose messages go there."""
        made = Celery("slow", broker="memory://", set_as_current=False)
        made.amqp.send_task_message = self._take
        return made

    def _take(self, producer: Any, name: str, made: Any, **_: Any) -> None:
        self.gates.get(len(self.sent), threading.Event()).wait(
            PATIENCE if len(self.sent) in self.gates else self.seconds
        )
        self.sent.append(made.headers["id"])


def messenger(url: str, post: Post, default: MessagePublisher | None = None, **settings: Any) -> Messenger:
    """A messenger whose passes the test makes."""
    given = {"lease": 30.0, "poll": 0.1, **settings}
    routes = Routes(default, {"post": post})
    made.append(Messenger(lambda: psycopg.connect(url, autocommit=True), routes, Settings(**given)))
    return made[-1]


def deliver(*messengers: Messenger, passes: int = 200) -> None:
    """Make passes until nothing is left to do now."""
    quiet = 0
    for _ in range(passes):
        for each in messengers:
            each._known._idle_look_at = each._known._look_at = 0.0
        found = sum(each.run_once() for each in messengers)
        for each in messengers:
            wait_until(lambda each=each: not each._busy or not each._answers.empty(), "a lane to answer")  # type: ignore[misc]
        quiet = 0 if found or not all(each.idle() for each in messengers) else quiet + 1
        if quiet > 1:
            return
    raise AssertionError("messages go round in circles")
