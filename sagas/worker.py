"""The worker: begin, run, decide, record. One batch of rows at a time, each with an error handling of its own.

begin      take the rows over and load their sagas, one statement for all
requests   cancel and the like are decided at once
local      groups share a transaction with their log entries
external   one body after the other; results are recorded together
go on      what was recorded and continues in a queue of ours is already begun: the next wave
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from uuid import uuid4

import msgspec

from sagas.body import SagaClass, perform, step_named
from sagas.errors import UnknownSaga
from sagas.events import Abort, Answer, Cancel, Direction, Event, LateAnswer, RetryNow
from sagas.failure import clean
from sagas.guard import Guard
from sagas.heart import Heart, Job
from sagas.local import Apart, LocalRunner
from sagas.pace import Pace
from sagas.plan import Plan
from sagas.points import Point, reached
from sagas.ports import Store
from sagas.recorder import Happened, Recorder
from sagas.registry import registry
from sagas.store import rows
from sagas.store.rows import Connection, Damaged, Delivery
from sagas.takeover import Misplaced
from sagas_outbox import claims
from sagas_outbox.claims import Held
from sagas_outbox.link import Link

log = logging.getLogger("sagas.worker")


class Payload(msgspec.Struct):
    """What the row of a request says."""

    actor: str = ""
    reason: str = ""
    step: str = ""


REQUESTS: dict[str, Callable[[Payload], Event]] = {
    "cancel": lambda given: Cancel(given.actor, given.reason),
    "retry": lambda given: RetryNow(given.actor, given.reason),
    "abort": lambda given: Abort(given.actor, given.reason),
    "late_answer": lambda given: LateAnswer(given.step),
}
REQUEST_DELAY = 0.5  # seconds that work waits for a request of its saga, if that does not wake it
DAMAGED_DELAY = 60.0  # seconds until an unreadable row is looked at again


class Worker:
    """Runs begun rows of one store in one process. `run` may be called from several threads.

    Args:
        store: where the sagas are.
        end_process: ends this process at once, with a message.
        ends_overruns: whether a body past its timeout and grace is reason enough.
        goes_on: whether it may continue from work in one queue with work in another.
        draining: whether it is to begin nothing more; then rows that wait are given back.
        pace: measurements shared with whoever sizes batches.
    """

    def __init__(
        self,
        store: Store,
        *,
        end_process: Callable[[str], None],
        ends_overruns: bool,
        goes_on: Callable[[str, str], bool],
        draining: Callable[[], bool],
        pace: Pace | None = None,
    ) -> None:
        self.store, self.settings = store, store.settings
        self.holder = f"worker:{uuid4().hex}"
        self.pace = pace or Pace()
        self.heart = Heart(
            Link(store.connect), holder=self.holder, settings=store.settings, end_process=end_process,
            ends_overruns=ends_overruns, draining=draining,
        )  # fmt: skip
        self._link = Link(store.connect)
        self._guards = threading.local()
        self._guard_links: list[Link] = []
        self._apart = Apart()
        self._recorder = Recorder(
            self._link, definition_of, holder=self.holder, lease=self.settings.lease, goes_on=goes_on
        )  # fmt: skip

    def start(self) -> None:
        """Start keeping leases. Call it after the fork."""
        self.heart.start()

    def stop(self) -> None:
        """Stop keeping leases and close connections; whatever is still held is taken over by others."""
        self.heart.stop()
        for link in (self._link, *self._guard_links):
            link.close()

    def begin(self, connection: Connection, held: Sequence[Held], *, published: bool) -> list[Delivery]:
        """Take rows over. Rows this process cannot read or does not know are put off and reported."""
        begun = rows.begin(
            connection, held, holder=self.holder, lease=self.settings.lease, published=published, now=None
        )  # fmt: skip
        if begun:
            reached(Point.AFTER_BEGIN, ",".join(_label(each) for each in begun[:20]))
        good = [each for each in begun if isinstance(each, Delivery)]
        self._put_off(connection, [each for each in begun if isinstance(each, Damaged)])
        return self._requests_first(connection, self._known(connection, good))

    def take_up(self, deliveries: list[Delivery]) -> Job:
        """Keep the leases of begun rows until `run` works through them; who waits too long is given back."""
        job = self.heart.open_job()
        self.heart.add(job, deliveries)
        return job

    def run(self, job: Job) -> None:
        """Work through begun rows and whatever follows from them."""
        self.store.between()
        try:
            while wave := self._wave(job):
                reached(Point.BETWEEN_STEPS, ",".join(_label(each) for each in wave[:20]))
                self.heart.add(job, wave)
        finally:
            self.heart.close_job(job)
            self.store.between()

    def _wave(self, job: Job) -> list[Delivery]:
        """One step of every row of the job; returns what is already begun for the next one."""
        continued: list[Delivery] = []
        happened: list[Happened] = []
        local: list[Delivery] = []
        oldest = 0.0
        while (delivery := self.heart.take(job)) is not None:
            if delivery.attempt is not None and not _external(delivery):
                local.append(delivery)
                if len(local) == self.settings.local_group:
                    continued += self._local(job, local)
                    local = []
                continue
            if happened and (time.monotonic() - oldest > self.settings.flush or self._may_take_long(delivery)):
                continued += self._record(happened)
                happened = []
            event = self._event(job, delivery)
            if event is not None:
                oldest = oldest if happened else time.monotonic()
                happened.append((delivery, event))
        if happened:
            continued += self._record(happened)
        if local:
            continued += self._local(job, local)
        return continued

    def _event(self, job: Job, delivery: Delivery) -> Event | Misplaced | None:
        """What came of one row. A fault of ours costs that row its lease, and its neighbours nothing."""
        if not self.heart.may_begin(delivery):  # this process was frozen, or waited long for something
            log.warning("%s: not begun, its lease has ended or is about to; another worker takes over", delivery.label)
            return None
        try:
            return request_of(delivery) if delivery.attempt is None else self._perform(job, delivery, None)
        except Exception:
            log.exception("%s: what came of it cannot be told; another worker takes over", delivery.label)
            self.heart.release([delivery.held])
            return None

    def _may_take_long(self, delivery: Delivery) -> bool:
        """Results do not wait for a body that is slow, or that nobody has timed yet."""
        return delivery.attempt is not None and self.pace.mean(_subject(delivery)) > self.settings.flush

    def _perform(self, job: Job, delivery: Delivery, session: object) -> Answer | Misplaced | None:
        self.heart.begin_body(job, delivery, self._timeout(delivery))
        began = time.perf_counter()
        try:
            return perform(
                delivery, definition_of(delivery), limit=self.settings.max_payload, session=session,
                alive=lambda: self.heart.alive(delivery), guard=self._guard if _external(delivery) else None,
            )  # fmt: skip
        finally:
            self.heart.end_body(job)
            self.store.after_body()
            self.pace.note(_subject(delivery), time.perf_counter() - began)

    def _guard(self, delivery: Delivery, step_key: str) -> Guard:
        if not hasattr(self._guards, "link"):
            self._guards.link = Link(self.store.connect)  # one for each thread that runs bodies
            self._guard_links.append(self._guards.link)
        return Guard(
            link=self._guards.link, saga_id=delivery.saga_id, token=delivery.token, step_key=step_key,
            limit=self.settings.max_payload, label=delivery.label,
        )  # fmt: skip

    def _local(self, job: Job, group: list[Delivery]) -> list[Delivery]:
        runner = LocalRunner(
            self.store, self._recorder, lambda delivery, session: self._perform(job, delivery, session), self._apart
        )  # fmt: skip
        held = [delivery.held for delivery in group]
        try:
            return runner.run(group)
        finally:
            self.heart.release(held)

    def _record(self, happened: list[Happened]) -> list[Delivery]:
        held = [delivery.held for delivery, _ in happened]
        try:
            return self._recorder.record(happened)
        finally:
            self.heart.release(held)

    def _timeout(self, delivery: Delivery) -> float:
        assert delivery.attempt is not None
        plan = definition_of(delivery).plan.by_name[delivery.attempt.step]
        undoing = delivery.attempt.direction is not Direction.DO and plan.undo is not None
        declared = plan.undo.timeout if undoing and plan.undo is not None else plan.timeout
        return declared or self.settings.timeout

    def _known(self, connection: Connection, deliveries: list[Delivery]) -> list[Delivery]:
        known: list[Delivery] = []
        unknown: list[Delivery] = []
        for delivery in deliveries:
            try:
                lacks = _lacks(definition_of(delivery).plan, delivery)
                (unknown if lacks else known).append(delivery)
                if lacks:
                    log.error("%s: this process's definition has no such %s; it waits", delivery.label, lacks)
            except UnknownSaga as problem:
                unknown.append(delivery)
                log.error("%s: it waits: %s", delivery.label, problem)
        if unknown:
            held = [each.held for each in unknown]
            claims.hand_back(connection, held, delay=self.settings.unknown_delay, now=None)
        return known

    def _requests_first(self, connection: Connection, begun: list[Delivery]) -> list[Delivery]:
        """Work of a saga that has a request waiting goes back; applying the request wakes it."""
        early = [each.held for each in begun if each.asked]
        if early:
            claims.hand_back(connection, early, delay=REQUEST_DELAY, now=None)
        return [each for each in begun if not each.asked]

    def _put_off(self, connection: Connection, damaged: Iterable[Damaged]) -> None:
        held = []
        for each in damaged:
            log.error("outbox row %d cannot be read, it waits: %s", each.held[0], clean(each.problem, 500))
            held.append(each.held)
        if held:
            claims.hand_back(connection, held, delay=DAMAGED_DELAY, now=None)


def request_of(delivery: Delivery) -> Event:
    """The event that a request row stands for."""
    if delivery.kind == "late_answer":
        log.error("%s: what was undone happened after that; its undo is looked at again", delivery.label)
    try:
        payload = msgspec.json.decode(delivery.payload or "{}", type=Payload)
    except msgspec.MsgspecError:
        payload = Payload(reason="(what the request said cannot be read)")
    return REQUESTS[delivery.kind](payload)


def _lacks(plan: Plan, delivery: Delivery) -> str:
    """What the saga needs and a definition that was changed without a new version lacks; nothing when all is there."""
    attempt = delivery.attempt
    if attempt is None and delivery.kind not in REQUESTS:
        return f"request {delivery.kind!r}"
    for name in (*delivery.state.steps, *([attempt.step] if attempt else ())):
        if name not in plan.by_name:
            return f"step {name!r}"
    if attempt and attempt.direction is not Direction.DO and plan.by_name[attempt.step].undo is None:
        return f"compensation of step {attempt.step!r}"
    return ""


def definition_of(delivery: Delivery) -> SagaClass:
    """The saga class a delivery was started with.

    Raises:
        UnknownSaga: this process does not know it.
    """
    return registry.get(delivery.name, delivery.version)


def _external(delivery: Delivery) -> bool:
    assert delivery.attempt is not None
    step = step_named(definition_of(delivery), delivery.attempt.step)
    if delivery.attempt.direction is Direction.DO or step.undo is None:
        return step.external
    return step.undo.external


def _subject(delivery: Delivery) -> tuple[str, str, str]:
    assert delivery.attempt is not None
    return delivery.name, delivery.attempt.step, delivery.attempt.direction.value


def _label(each: Delivery | Damaged) -> str:
    if isinstance(each, Damaged):
        return "damaged"
    return f"{each.attempt.step}:{each.attempt.direction}" if each.attempt else each.kind
