"""The relay of plain messages: claims what is due, has it sent, and notes down what came of it.

Claiming and noting down is done in one thread, each in one statement for any number of messages. Sending is done in
others: a lane for each destination, or one for a publisher whose destinations share a connection. A destination that
does not answer keeps its own lane busy, and nobody else waits for it; one that is broken is tried now and then.

A relay that dies after it sent something and before it noted that down leaves messages that are due again when their
lease ends: at least once, and receivers that must not do it twice use the inbox.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Protocol
from uuid import uuid4

import psycopg

from sagas_outbox import clock, delivery
from sagas_outbox.delivery import Connection, Room, Taken, Unsent
from sagas_outbox.destinations import Destinations
from sagas_outbox.errors import Unsendable
from sagas_outbox.judging import Answer, Batch, Judge
from sagas_outbox.link import Link
from sagas_outbox.points import Point, reached
from sagas_outbox.publishers import Behind, MessagePublisher, Routes
from sagas_outbox.rights import missing
from sagas_outbox.wake import THROTTLE, Ear

log = logging.getLogger("sagas.relay")

BATCH = 500  # messages for one destination at a time
PASS = 2000  # messages in one claim
MOST_DESTINATIONS = 100  # in one claim
LANES = 16  # batches under way at the same time
PRUNE_EVERY = 5.0  # seconds
PRUNE_MOST = 2000  # rows in one statement


class MessengerSettings(Protocol):
    """The settings a messenger goes by, in seconds and tries; see `sagas.settings.Settings`."""

    @property
    def poll(self) -> float: ...
    @property
    def lease(self) -> float: ...
    @property
    def publish_timeout(self) -> float: ...
    @property
    def wake(self) -> bool: ...
    @property
    def message_tries(self) -> int: ...
    @property
    def keep_sent(self) -> float: ...
    @property
    def keep_inbox(self) -> float: ...


class Messenger:
    """Sends the plain messages of one store. Any number may run.

    Args:
        connect: opens a new autocommit connection of psycopg 3.
        routes: who sends what.
        settings: its numbers.
    """

    def __init__(self, connect: Callable[[], Connection], routes: Routes, settings: MessengerSettings) -> None:
        self.holder = f"messenger:{uuid4().hex}"
        self.settings, self.routes = settings, routes
        self._connect, self._link, self._known = connect, Link(connect), Destinations()
        self._judge = Judge(tries=settings.message_tries)
        self._busy: dict[object, Batch] = {}  # by lane
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._sent: list[Taken] = []  # and not noted down yet
        self._unsent: list[Unsent] = []
        self._stir, self._draining = threading.Event(), threading.Event()
        self._pruned_at = self._renewed_at = 0.0
        self._blind = 0.0  # seconds until this relay looks for what it has not seen yet; 0: it just did

    def stop(self, *_: Any) -> None:
        """Claim nothing more and end. A signal handler has another thread call it."""
        self._draining.set()
        self._stir.set()

    def run(self) -> None:
        """Send until `stop` is called."""
        ear = Ear(self._connect, self._stir.set)
        if self.settings.wake:
            ear.start()
        found_before = False
        try:
            while not self._draining.is_set():
                self._stir.clear()
                found = self._pass()
                if not found:
                    pause = 2 * THROTTLE if found_before else self.settings.poll  # a hint may have been swallowed
                    self._stir.wait(min(pause, self._blind or pause))
                found_before = found > 0
            self._finish()
        finally:
            if self.settings.wake:
                ear.stop()
            self._link.close()

    def run_once(self) -> int:
        """One pass: note down what came of batches, claim what is due, have it sent; returns how much that was."""
        self._blind = 0.0
        try:
            with self._link.use() as connection:
                settled = self._settle(connection)
                self._renew(connection)
                self._prune(connection)
                taken, put_off = self._claim(connection)
                self._dispatch(taken)
                return settled + len(taken) + put_off
        except psycopg.Error as problem:
            if why := missing(problem, "sagas_relay"):
                log.error("messages: none is sent, trying again in %s s: %s", self.settings.poll, why)
            else:
                log.warning("messages: cannot reach Postgres, trying again in %s s: %s", self.settings.poll, problem)
            return 0

    def _pass(self) -> int:
        try:
            return self.run_once()
        except Exception:  # of a publisher's reset(), say: what was under way is due again when its claim ends
            log.exception("messages: a pass failed, trying again in %s s", self.settings.poll)
            self._draining.wait(self.settings.poll)
            return 0

    def idle(self) -> bool:
        """Whether no batch is under way and nothing is left to be noted down."""
        return not (self._busy or self._sent or self._unsent) and self._answers.empty()

    def _finish(self) -> None:
        """Wait for what is under way, as long as a publisher may take: half a timeout, and one for its last message."""
        deadline = time.monotonic() + 1.5 * self.settings.publish_timeout + 1
        while not self.idle() and time.monotonic() < deadline:
            self._stir.clear()
            if self._answers.empty():
                self._stir.wait(0.2)
            try:
                with self._link.use() as connection:
                    self._settle(connection)
            except psycopg.Error as problem:
                log.warning("messages: cannot note down what was sent, it will be sent again: %s", problem)
                return

    # --- claiming ---

    def _claim(self, connection: Connection) -> tuple[list[Taken], int]:
        self._blind = self._known.look_in()
        if not self._blind:
            began = time.monotonic()
            found = delivery.destinations(connection, now=clock.now())
            self._known.looked(found, time.monotonic() - began)
        if len(self._busy) >= LANES:
            return [], 0
        turn = self._known.turn(MOST_DESTINATIONS)
        share = min(BATCH, PASS // max(1, len(turn)))
        sharing = Counter(self._lane(each) for each, _ in turn)
        rooms = [Room(each, self._room(each, share, sharing), mark) for each, mark in turn]
        rooms = [room for room in rooms if room.messages > 0]
        if not rooms:
            self._known.idle = True
            return [], 0
        taken, put_off = delivery.claim(
            connection, rooms, holder=self.holder, lease=self.settings.lease, now=clock.now()
        )  # fmt: skip
        self._known.idle = not taken and not put_off
        return taken, put_off

    def _room(self, destination: str, share: int, sharing: Counter[object]) -> int:
        lane = self._lane(destination)
        if lane in self._busy or not (room := self._judge.room(lane, PASS)):
            return 0
        return min(max(1, room // sharing[lane]), self._judge.room(destination, share))

    def _lane(self, destination: str) -> object:
        try:
            return self.routes.lane(destination)
        except Unsendable:
            return destination

    # --- sending ---

    def _dispatch(self, taken: Sequence[Taken]) -> None:
        if not taken:
            return
        reached(Point.AFTER_MESSAGES_CLAIMED, str(len(taken)))
        for lane, messages in self._by_lane(taken).items():
            try:
                publisher = self.routes.publisher(messages[0].message.destination)
            except Unsendable as problem:
                batch = Batch(lane=lane, publisher=None, taken=messages, claimed_at=time.monotonic())
                self._answers.put(Answer(batch=batch, problem=problem))
                continue
            batch = self._busy[lane] = Batch(
                lane=lane, publisher=publisher, taken=messages, claimed_at=time.monotonic()
            )  # fmt: skip
            threading.Thread(target=self._send, args=(publisher, batch), name="sagas-lane", daemon=True).start()

    def _by_lane(self, taken: Sequence[Taken]) -> dict[object, list[Taken]]:
        """The messages of each lane. Lanes do not wait for each other: of a key that changes lanes the rest is left."""
        lanes: dict[object, list[Taken]] = {}
        of_key: dict[str, object] = {}
        for each in taken:
            lane, key = self._lane(each.message.destination), each.message.key
            if key is not None and of_key.setdefault(key, lane) != lane:
                of_key[key] = None  # and all that follows
                self._unsent.append(self._judge.fate(each, Behind()))
            else:
                lanes.setdefault(lane, []).append(each)
        return lanes

    def _send(self, publisher: MessagePublisher, batch: Batch) -> None:
        """In the lane's thread."""
        try:
            if time.monotonic() - batch.claimed_at > self.settings.lease / 2:  # this process stood still
                answer = Answer(batch=batch, outcomes=[Behind()] * len(batch.taken))
            else:
                outcomes = publisher.send([each.message for each in batch.taken])
                if len(outcomes) != len(batch.taken):
                    raise TypeError(f"{publisher!r} gave {len(outcomes)} outcomes for {len(batch.taken)} messages")
                answer = Answer(batch=batch, outcomes=outcomes)
                reached(Point.AFTER_MESSAGES_SENT, batch.taken[0].message.destination)
        except BaseException as problem:
            answer = Answer(batch=batch, problem=problem)
        self._answers.put(answer)
        self._stir.set()

    # --- noting down ---

    def _settle(self, connection: Connection) -> int:
        """Note down what came of batches, with at most two statements; what fails here is tried again."""
        while not self._answers.empty():
            answer = self._answers.get_nowait()
            self._busy.pop(answer.batch.lane, None)
            sent, unsent = self._judge.judge(answer)
            self._sent += sent
            self._unsent += unsent
        done = len(self._sent) + len(self._unsent)
        if self._sent:
            delivery.settle_sent(connection, self._sent, keep=self.settings.keep_sent > 0, now=clock.now())
            self._sent = []
        if self._unsent:
            delivery.settle_unsent(connection, self._unsent, now=clock.now())
            self._unsent = []
        return done

    # --- keeping house ---

    def _renew(self, connection: Connection) -> None:
        """Keep what is being sent: a slow publisher is no reason for another relay to send it too."""
        if time.monotonic() - self._renewed_at < self.settings.lease / 3:
            return
        self._renewed_at = time.monotonic()
        taken = [each for batch in self._busy.values() for each in batch.taken]
        if taken:
            delivery.renew(connection, taken, lease=self.settings.lease, now=clock.now())

    def _prune(self, connection: Connection) -> None:
        """Delete what has been kept long enough, some of it at a time."""
        if time.monotonic() - self._pruned_at < PRUNE_EVERY:
            return
        keep = self.settings.keep_sent
        gone = delivery.prune_messages(connection, keep=keep, most=PRUNE_MOST, now=clock.now())
        gone += delivery.prune_inbox(connection, keep=self.settings.keep_inbox, most=PRUNE_MOST, now=clock.now())
        if gone < PRUNE_MOST:  # else there is more
            self._pruned_at = time.monotonic()
