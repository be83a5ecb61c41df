"""The application: starts orders and asks for things, and asks again until it knows that it was heard."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg
from django.db import InterfaceError, OperationalError, connection, transaction

from sagas import engine, pauses
from sagas_outbox import publish
from tests.chaos.app.going_on import Review
from tests.chaos.app.money import Placed, write
from tests.chaos.app.tasks import post
from tests.chaos.kinds import KINDS
from tests.chaos.plan import Ask, Wish
from tests.chaos.scene import Scene

LOST = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
PATIENCE = 60.0  # seconds until one wish has to have been heard


def first_number(wish: Wish) -> int:
    """What an order is placed with; one that comes again counts its runs by it."""
    return 0 if wish.kind == "again" else wish.number


class NotNow(Exception):
    """Rolls a transaction back, on purpose."""


@dataclass
class Load:
    """Grants wishes in time.

    Args:
        scene: whose database it is.
        wishes: in order of time.
    """

    scene: Scene
    wishes: Sequence[Wish]
    committed: list[Wish] = field(default_factory=list)
    rolled_back: list[Wish] = field(default_factory=list)
    tries: int = 0
    error: BaseException | None = None

    def start(self, since: float) -> None:
        """Begin, in a thread; `since` is the beginning by the monotonic clock."""
        self._since = since
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait until everything was asked for.

        Raises:
            AssertionError: it was not within `timeout` seconds.
        """
        self._thread.join(timeout)
        if self.error is not None:
            raise self.error
        assert not self._thread.is_alive(), f"after {timeout:g} s the application still has wishes"

    def _run(self) -> None:
        try:
            for wish in self.wishes:
                time.sleep(max(0, self._since + wish.at - time.monotonic()))
                self._until_heard(wish)
        except BaseException as error:
            self.error = error
        finally:
            connection.close()

    def _until_heard(self, wish: Wish) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            self.tries += 1
            try:
                self._grant(wish)
                break
            except LOST:
                if time.monotonic() > deadline:
                    raise
                with suppress(*LOST):
                    connection.close()
                time.sleep(0.1)
        if wish.ask in (Ask.START, Ask.ROLL_BACK):
            (self.committed if wish.ask is Ask.START else self.rolled_back).append(wish)

    def _grant(self, wish: Wish) -> None:
        saga = KINDS[wish.kind].saga
        if wish.ask in (Ask.HOLD_UP, Ask.LET_GO):
            with psycopg.connect(self.scene.url, autocommit=True) as wire:
                if wish.ask is Ask.HOLD_UP:
                    pauses.pause(wire, pauses.Scope.DEFINITION, saga.saga_name, reason="a look")
                else:
                    pauses.resume(wire, pauses.Scope.DEFINITION, saga.saga_name)
            return
        with suppress(NotNow), transaction.atomic():
            match wish.ask:
                case Ask.START | Ask.ROLL_BACK:
                    self._order(wish)
                case Ask.SIGNAL:
                    review = Review(wish.order)
                    saga.review.send(review, key=wish.order, dedupe_id=f"{wish.order}:1")  # type: ignore[attr-defined]
                case Ask.REMARK:
                    saga.remark.send(Review("well"), key=wish.order, dedupe_id="2")  # type: ignore[attr-defined]
                case Ask.CANCEL:
                    saga.cancel(key=wish.order, reason="the customer rang")
                case Ask.PAUSE | Ask.RESUME:
                    engine.request(saga.saga_name, wish.ask.value, key=wish.order, reason="a look", actor="ann")

    def _order(self, wish: Wish) -> None:
        """What a view does: its own line, the saga and a message, or none of them."""
        run = KINDS[wish.kind].saga.start(Placed(wish.order, first_number(wish)), key=wish.order)
        if run.created:
            write(wish.order, "ordered")
            publish(post, {"order": wish.order})
        if wish.ask is Ask.ROLL_BACK:
            raise NotNow
