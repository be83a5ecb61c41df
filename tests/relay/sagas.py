"""What the workers run. Every body leaves a note of who ran it; some wait at a gate, or end their process."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

from django.db import connection
from opentelemetry import trace

import tests.relay.awaiting
import tests.relay.paced
import tests.relay.queued  # noqa: F401
from sagas import Refused, Retry, Saga, child_saga, external_step, step, wait_for

OFTEN = Retry(max_attempts=20, first=0.2, factor=1.2, longest=0.5)
OTHER_QUEUE = "Other.Queue-2"


@dataclass(frozen=True)
class Job:
    """What one saga is to do.

    Attributes:
        gate: the number of a gate at which the body waits; see `Plant.gate`.
        ends: whether the body ends its process.
        ballast: only there to be large.
    """

    gate: int = 0
    ends: bool = False
    ballast: str = ""


def carry_out(run: Saga[Job]) -> None:
    note(run)
    if run.input.gate:
        with connection.cursor() as cursor:
            cursor.execute("select pg_advisory_xact_lock_shared(%s)", [run.input.gate])
        note(run, "after the gate")
    if run.input.ends:
        os._exit(3)


def note(run: Saga[Any], what: str = "") -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into relay_note (key, what, attempt, pid, backend) values (%s, %s, %s, %s, pg_backend_pid())",
            [run.key, what, run.attempt, os.getpid()],
        )


class Single(Saga[Job], name="relay.single", version=1):
    """One external step."""

    @external_step(queue="quick", pivot=True, retry=OFTEN)
    def act(self) -> None:
        carry_out(self)


class Together(Saga[Job], name="relay.together", version=1):
    """One step, known to be short before anybody ran it: many share a message."""

    @external_step(queue="quick", pivot=True, retry=OFTEN)
    def act(self) -> None:
        carry_out(self)


class Deadly(Saga[Job], name="relay.deadly", version=1):
    """The same, and not many deliveries."""

    @external_step(queue="quick", pivot=True, retry=OFTEN, max_deliveries=3)
    def act(self) -> None:
        carry_out(self)


class Alone(Saga[Job], name="relay.alone", version=1):
    """One step that nobody has measured: each has a message of its own."""

    @external_step(queue="quick", pivot=True, retry=OFTEN)
    def act(self) -> None:
        carry_out(self)


class Local(Saga[Job], name="relay.local", version=1):
    """One local step."""

    @step(queue="quick", pivot=True, retry=OFTEN)
    def write(self) -> None:
        carry_out(self)


class Short(Saga[Job], name="relay.short", version=1):
    """A step that may not take long, and is not known to be undone or done when it does."""

    @external_step(queue="quick", pivot=True, retry=OFTEN, timeout=0.3)
    def act(self) -> None:
        carry_out(self)


class Chain(Saga[Job], name="relay.chain", version=1):
    """Three steps of one queue."""

    @external_step(queue="quick", compensate=None)
    def first(self) -> None:
        note(self, "first")

    @step(queue="quick", compensate=None)
    def second(self) -> None:
        note(self, "second")

    @external_step(queue="quick", pivot=True)
    def third(self) -> None:
        note(self, "third")


class Hop(Saga[Job], name="relay.hop", version=1):
    """Three steps, the middle one in another queue."""

    @external_step(queue="quick", compensate=None)
    def first(self) -> None:
        note(self, "first")

    @external_step(queue=OTHER_QUEUE, compensate=None)
    def second(self) -> None:
        note(self, "second")

    @external_step(queue="quick", pivot=True)
    def third(self) -> None:
        note(self, "third")


class Spawns(Saga[Job], name="relay.spawns", version=1):
    """A local step that starts another saga, and an external one with an effect."""

    @step(queue="quick", compensate=None)
    def spawn(self) -> None:
        Chain.start(Job(), key=f"of {self.key}")

    @external_step(queue="quick", pivot=True, retry=OFTEN)
    def act(self) -> str:
        return self.effect("once", lambda key: note(self, key) or key, returns=str)


class Approved(Saga[Job], name="relay.approved", version=1):
    """Asks somebody between two steps of one queue, and not for ever."""

    @external_step(queue="quick", compensate=None)
    def prepare(self) -> None:
        note(self, "prepare")

    approval = wait_for(str, timeout=3600)

    @external_step(queue="quick", pivot=True)
    def carry_on(self) -> None:
        note(self, self.approval.result)


class Importing(Saga[Job], name="relay.importing", version=1):
    """Thirty lines; the first attempt is killed in the middle of one."""

    @external_step(queue="quick", compensate=None, retry=OFTEN)
    def load(self) -> int:
        for line in range(self.progress or 0, 30):
            note(self, str(line))
            if line == 17 and self.attempt == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            self.heartbeat(progress=line + 1)
        return 30


class Packing(Saga[Job], name="relay.packing", version=1):
    """What another saga waits for."""

    @external_step(queue=OTHER_QUEUE)
    def pack(self) -> None:
        note(self, "pack")

    @pack.compensate
    def unpack(self, _: None) -> None:
        note(self, "unpack")


class Traced(Saga[Job], name="relay.traced", version=1):
    """Fails once, hops to another queue, starts a saga, and turns back in the end."""

    @external_step(queue="quick", retry=OFTEN)
    def charge(self) -> str:
        with trace.get_tracer("bank").start_as_current_span("POST /charges"):
            note(self, "charge")
        if self.attempt == 1:
            raise ConnectionError("no reply")
        return "charged"

    @charge.compensate
    def refund(self, charge: str) -> None:
        note(self, "refund")

    @step(queue=OTHER_QUEUE)
    def reserve(self) -> None:
        note(self, "reserve")

    @reserve.compensate
    def release(self, _: None) -> None:
        note(self, "release")

    packing = child_saga(Packing, input=lambda self: Job())

    @external_step(queue="quick", pivot=True)
    def ship(self) -> None:
        raise Refused("no such street")
