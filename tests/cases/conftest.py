"""Parts that the cases are played with: a relay whose broker is a list, and workers that take messages from it.

A message can be delivered late, twice, in any order or never; a relay or worker can die at a named point. Sagas and
the world outside are those of `tests.shop`. Processes that are really killed are in `tests.faults`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from celery import Celery
from django.db import connections

from sagas.points import Point, listen
from sagas.settings import Settings
from sagas.store.rows import paces
from sagas_django.models import OutboxRow
from sagas_django.store import DjangoStore
from sagas_outbox.claims import Held
from sagas_outbox.relay import Relay
from tests.integration.conftest import other_database, quiet, shop, shop_url, world
from tests.relay.conftest import new_plant, own_redis, plant_template
from tests.support.attentive import attentive
from tests.support.stories import Aside, bring_forward, expire_leases
from tests.support.workers import one_worker, run_batch

__all__ = ["new_plant", "other_database", "own_redis", "plant_template", "quiet", "shop", "shop_url", "world"]

PATIENCE = 20.0  # seconds that any wait may take
ROUNDS = 60

T = TypeVar("T")


class Dead(BaseException):
    """What ends a relay or worker in the test's own process; nothing in the engine catches it."""


@dataclass(frozen=True)
class Letter:
    """One message as a broker has it."""

    queue: str
    rows: tuple[Held, ...]


@dataclass
class Mailbox:
    """A publisher whose broker is a list.

    Args:
        refuses: called with each message before it is taken; may raise or block.
    """

    refuses: Callable[[Letter], object] = lambda letter: None
    letters: list[Letter] = field(default_factory=list)
    resets: int = 0

    def publish(self, queue: str, rows: Sequence[Held]) -> None:
        letter = Letter(queue, tuple(rows))
        self.refuses(letter)
        self.letters.append(letter)

    def reset(self) -> None:
        self.resets += 1

    def take(self) -> list[Letter]:
        """All messages that are there and that nobody has taken yet."""
        taken = list(self.letters)
        del self.letters[: len(taken)]
        return taken


@contextmanager
def relaying(publisher: Any, using: str = "default", *, connect: Any = None, **settings: Any) -> Iterator[Relay]:
    """A relay in this process, driven pass by pass or by its own `run`."""
    chosen = Settings(**({"wake": False, "poll": 0.05} | settings))
    relay = attentive(Relay(connect or DjangoStore(using).connect, publisher, chosen, paces=paces))
    try:
        yield relay
    finally:
        relay.stop()
        relay._link.close()


def deliver(letter: Letter, *more: Letter, using: str = "default", goes_on: bool = False) -> int:
    """A worker that knows nothing of any other takes a message (or several); returns how many rows it began."""
    count = 0
    with one_worker(using, goes_on=goes_on) as worker, closing(worker.store.connect()) as wire:
        for each in (letter, *more):
            begun = worker.begin(wire, each.rows, published=True)
            run_batch(worker, begun)
            count += len(begun)
    return count


@contextmanager
def memory_broker() -> Iterator[tuple[Celery, Any]]:
    """A Celery app whose broker and results are in this process, and its default queue."""
    app = Celery("tests.cases", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.broker_transport_options = {"visibility_timeout": 1}
    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue(app.conf.task_default_queue)
        yield app, queue
        queue.close()
    app.close()


def received(queue: Any) -> Any:
    """The next message of a Celery queue, taken out and acknowledged."""
    message = queue.get(block=True, timeout=5)
    message.ack()
    return message


def letter_of(message: Any) -> Letter:
    """What a message of Celery's says."""
    return Letter("default", tuple((id, token) for id, token in message.payload[1]["rows"]))


def publish_due(relay: Relay, mailbox: Mailbox) -> list[Letter]:
    """Pass after pass until one publishes nothing; what was published, taken out of the mailbox."""
    while relay.run_once():
        pass
    return mailbox.take()


def until_quiet(relay: Relay, mailbox: Mailbox, using: str = "default") -> list[Letter]:
    """Publish and deliver until nothing is left that will be due soon; returns all that was published."""
    published: list[Letter] = []
    for _ in range(ROUNDS):
        letters = publish_due(relay, mailbox)
        published += letters
        if letters:
            deliver(*letters, using=using)
        if not letters and not bring_forward(using):
            return published
    raise AssertionError(f"after {ROUNDS} rounds there is still work: {list(OutboxRow.objects.values())}")


def recover(using: str = "default", mailbox: Mailbox | None = None) -> None:
    """What a fresh relay and fresh workers make of it, once all leases and publish windows have ended."""
    expire_leases(using)
    box = mailbox or Mailbox()
    with relaying(box, using) as relay:
        until_quiet(relay, box, using)


@dataclass
class Death:
    """Where somebody dies, and whether it came to that."""

    hit: bool = False


@contextmanager
def dying_at(point: Point, work: str | None = None, *, of: BaseException | None = None) -> Iterator[Death]:
    """Whoever reaches a point first dies there.

    Args:
        point: where.
        work: such as "charge:do"; None: whatever it is.
        of: what is raised; default: `Dead`.
    """
    death, lock = Death(), threading.Lock()

    def strike(reached: Point, detail: str) -> None:
        with lock:
            if death.hit or reached is not point or (work is not None and work not in detail.split(",")):
                return
            death.hit = True
        raise of or Dead(f"at {point}")

    listen(strike)
    try:
        yield death
    finally:
        listen(None)


class Gate:
    """Where a body stands still until the test opens it; for `World.plan`."""

    def __init__(self, answer: Any = None) -> None:
        self._answer, self.reached, self.opened = answer, threading.Event(), threading.Event()

    def __call__(self, run: Any) -> Any:
        self.reached.set()
        assert self.opened.wait(PATIENCE), "nobody opened the gate"
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.set()

    def wait(self) -> None:
        """Wait until a body stands here."""
        assert self.reached.wait(PATIENCE), "no body came to the gate"


@contextmanager
def at_gate(gate: Gate, work: Callable[[], object]) -> Iterator[Aside]:
    """Work that has come to a gate in a thread of its own; it is let through and waited for at the end."""
    aside = Aside(work)
    try:
        gate.wait()
        yield aside
    finally:
        gate.opened.set()
        aside.join()


@contextmanager
def meanwhile(*works: Callable[[], object]) -> Iterator[None]:
    """Do things again and again, each in a thread of its own, until the block ends."""
    over = threading.Event()

    def again(work: Callable[[], object]) -> None:
        while not over.is_set():
            work()

    threads = [Aside(partial(again, work)) for work in works]
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def wait_until(look: Callable[[], T], what: str, timeout: float = PATIENCE) -> T:
    """Look again and again until there is something to see, and return it."""
    deadline = time.monotonic() + timeout
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.01)
    return seen


def sql(statement: str, *parameters: Any, using: str = "default") -> list[Any]:
    """Run a statement in the test's own connection; returns its rows."""
    with connections[using].cursor() as cursor:
        cursor.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []
