"""What one body is told about its saga, and what it can ask for: its input, results, effects, the heartbeat.

An `async def` body has twins of the calls that speak with the database. They do so in a thread, so that the bodies
beside it go on; whatever else it asks for is at hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw

from sagas import codec, errors, locking
from sagas.duty import SagaClass, steps_of
from sagas.events import Attempt, Direction, ErrorText, Failed
from sagas.fold import track_of
from sagas.guard import Apart, Guard
from sagas.head import Head
from sagas.inline import at_once
from sagas.keys import idempotency_key
from sagas.machine import step_of
from sagas.outcome import UNKNOWN
from sagas.ports import LocalTransaction
from sagas.registry import registry
from sagas.step import Step, StepRun
from sagas.store.rows import Delivery
from sagas.takeover import Argument

MAX_PROGRESS = 64 * 1024  # bytes
GuardFor = Callable[[Delivery, str], Guard]  # for an attempt and its idempotency key


def step_named(definition: SagaClass, name: str) -> Step[Any, Any]:
    """One declared step of a definition."""
    return steps_of(definition)[name]


class Body(msgspec.Struct, kw_only=True, eq=False):
    """What one body is told about its saga (`RunContext`), and the means to run it."""

    delivery: Delivery
    definition: SagaClass
    attempt_event: Attempt
    limit: int  # bytes of a result
    lent: Any = None  # the session of a local step, where its integration has such
    alive: Callable[[], bool]
    guard: GuardFor | None  # None: a local step
    transaction: LocalTransaction | None = None  # of a local step
    apart: Apart | None = None  # where an `async def` body waits for the database; None: it runs alone
    awaits: bool = False  # whether it is `async def`
    keyed: tuple[Direction, int] | None = None  # direction and generation of its idempotency key
    effects: int = 0  # of this attempt that happened, or may have
    had: set[str] = msgspec.field(default_factory=set)  # names of those that have their answer, or wait for it
    read: Any = UNSET  # the input, once it was asked for
    seen: Body | None = None  # the saga that started this one, once it was asked for

    def declared(self) -> Step[Any, Any]:
        """The step that is at work."""
        return step_named(self.definition, self.attempt_event.step)

    @property
    def head(self) -> Head:
        return self.delivery.reader.head(self.delivery.history)

    @property
    def input(self) -> Any:
        if self.read is UNSET:
            self.read = self.delivery.reader.input(self.delivery.history, self.definition.input_type)
        return self.read

    @property
    def parent(self) -> Body:
        """The saga that started this one, for looking only: what it was given, and what it had done by then."""
        if self.seen is None:
            reader, head = self.delivery.reader, self.head
            assert reader.kin is not None and head.parent is not None
            found = reader.kin.get(head.parent, head.parent_step, reader.hidden)
            self.seen = Body(
                delivery=found, definition=registry.get(found.name, found.version), attempt_event=self.attempt_event,
                limit=0, alive=self.alive, guard=None,
            )  # fmt: skip
        return self.seen

    def ahead(self) -> Iterator[Callable[[], None]]:
        """What an `async def` function may ask for is to be loaded before: where it asks, nothing may wait for it."""
        kin, head = self.delivery.reader.kin, self.head if self.definition.of_items else None
        parent = head and head.parent  # the saga of which this is an item
        if kin and head and parent and not kin.knows(parent, head.parent_step):
            yield partial(kin.load, parent, head.parent_step)
        if self.delivery.heavy:
            yield partial(self.delivery.reader.load_large, self.delivery.history)

    @property
    def id(self) -> UUID:
        return self.delivery.saga_id

    @property
    def key(self) -> str:
        return self.delivery.key

    @property
    def idempotency_key(self) -> str:
        if self.keyed is None:  # nothing is asked of another system
            return ""
        direction, generation = self.keyed
        return idempotency_key(self.id, self.attempt_event.step, direction, generation)

    @property
    def attempt(self) -> int:
        track = track_of(step_of(self.delivery.state, self.attempt_event.step), self.attempt_event.direction)
        return track.attempts + self.attempt_event.deliveries

    @property
    def headers(self) -> Mapping[str, str]:
        return self.head.headers

    @property
    def session(self) -> Any:
        if self.transaction is None:
            raise errors.ConfigurationError(
                f"{self.delivery.label}: an external step has no session, nor has a wait or a child saga: no "
                f"transaction is open while others are waited for; open one of your own where it needs the database, "
                f"or write in a local @step"
            )
        return self.lent

    def step_run(self, name: str) -> StepRun[Any]:
        state = step_of(self.delivery.state, name)
        load = None if state.result is None else (lambda: self.result(name))
        return StepRun(
            name=name, status=state.status.value, attempts=state.do.attempts,
            idempotency_key=idempotency_key(self.id, name, generation=state.generation), load=load,
        )  # fmt: skip

    def result(self, name: str) -> Any:
        """The stored result of a step, decoded anew each time, so that no body sees another's changes to it."""
        seq = step_of(self.delivery.state, name).result
        assert seq is not None
        return self.delivery.reader.result(self.delivery.history, seq, step_named(self.definition, name))

    def take(self, subjects: tuple[str, ...], patience: float) -> locking.Blocker | None:
        """Take the semantic locks of the step, or say what stands in the way. `patience` in seconds; 0: none."""
        step = self.attempt_event.step
        if self.guard is None:
            assert self.transaction is not None, f"{self.delivery.label}: no transaction to take semantic locks in"
            return locking.take(self.transaction.connection, self.delivery, step, subjects, fenced=False)
        with self.guard(self.delivery, self.idempotency_key).link.use() as connection:
            found = locking.take(connection, self.delivery, step, subjects, fenced=True)
            if found is not None and patience:
                locking.wait(connection, self.delivery, step, found.subject)
        return found

    def effect(self, name: str, call: Callable[[str], Any], *, returns: Any, request: object = None) -> Any:
        self._refuse_to_block("effect(...)", "await self.aeffect(...)")
        with self._effect(name) as guard:
            found = guard.effect(name, call, returns=returns, request=request)
        return self.delivery.reader.note(found, returns)

    async def aeffect(
        self, name: str, call: Callable[[str], Awaitable[Any]], *, returns: Any, request: object = None
    ) -> Any:
        with self._effect(name) as guard:
            found = await guard.aeffect(name, call, returns=returns, request=request, apart=self.apart or at_once)
        return self.delivery.reader.note(found, returns)

    @contextmanager
    def _effect(self, name: str) -> Iterator[Guard]:
        """Around one effect of this attempt: checked before, counted after."""
        if self.guard is None:
            raise errors.ConfigurationError(
                f"{self.delivery.label}: effect() is for external steps; what a local step writes is exactly once "
                f"by itself, and what reaches other systems belongs in an @external_step"
            )
        self._check_alive()
        if name in self.had:
            raise errors.EffectMismatch(
                f"{self.delivery.label}: effect {name!r} has its answer already in this attempt; give each effect of a "
                f"step a name of its own, in a loop for example name=f'charge-{{item.id}}'"
            )
        self.had.add(name)
        self.effects += 1
        try:
            yield self.guard(self.delivery, self.idempotency_key)
        except BaseException as problem:
            self.had.discard(name)
            if isinstance(problem, errors.Refused):  # only this says that it did not happen
                self.effects -= 1
            raise

    @property
    def progress(self) -> Any:
        raw = self.delivery.progress
        return None if raw is None else msgspec.json.decode(raw)

    def error_text(self, problem: BaseException) -> ErrorText:
        """What is kept of an exception: nothing sensitive of this saga, whether or not this body has read it."""
        reader, history = self.delivery.reader, self.delivery.history
        sensitive = [(self.definition.input_type, lambda: self.input)] + [
            (step_named(self.definition, name).result_type, lambda name=name: self.result(name))
            for name, state in self.delivery.state.steps.items() if state.result in history
        ]  # fmt: skip
        return reader.error_text(problem, sensitive)

    def failed(self, problem: BaseException, *, began: bool = True, give_up: bool = False) -> Failed:
        """What to say of an error. Whether a body had acted before it met what it cannot read nobody knows, unless that
        is rolled back."""
        misfit = isinstance(problem, errors.Misfit) and (self.transaction is not None or not began)
        return Failed(self.attempt_event, self.error_text(problem), give_up=give_up, began=began, misfit=misfit)

    def heartbeat(self, progress: Any = None) -> None:
        if progress is not None:
            self._refuse_to_block("heartbeat(progress=...)", "await self.aheartbeat(progress=...)")
            self._kept(self._keep(progress)())
        self._check_alive()

    async def aheartbeat(self, progress: Any = None) -> None:
        if progress is not None:
            self._kept(await (self.apart or at_once)(self._keep(progress)))
        self._check_alive()

    def _check_alive(self) -> None:
        if not self.alive():
            raise self._lost()

    def _refuse_to_block(self, call: str, twin: str) -> None:
        if self.awaits and asyncio._get_running_loop() is not None:
            raise errors.ConfigurationError(
                f"{self.delivery.label}: {call} would hold up every other async body of this process while it speaks "
                f"with the database; write {twin}"
            )

    def _lost(self) -> errors.LeaseLost:
        return errors.LeaseLost(
            f"{self.delivery.label}: the lease is lost, another worker may have taken over; stop without further "
            f"side effects, whatever this attempt did is found out by the next one"
        )

    def _keep(self, progress: Any) -> Callable[[], bool]:
        """What keeps it; returns whether the attempt goes on."""
        if self.guard is None:
            raise errors.ConfigurationError(
                f"{self.delivery.label}: heartbeat(progress=...) is for external steps; what a local step has written "
                f"is undone when it does not end, so the next attempt begins at the beginning"
            )
        raw = codec.encode_plain(progress, limit=MAX_PROGRESS, what="progress")
        guard = self.guard(self.delivery, self.idempotency_key)
        return lambda: guard.keep(raw.decode())

    def _kept(self, kept: bool) -> None:
        if not kept:
            raise self._lost()

    def argument(self, given: Argument | Raw | None) -> Any:
        """What the compensation is called with."""
        if given is Argument.UNKNOWN:
            given = self.delivery.late or given
        if given is Argument.UNKNOWN:
            return UNKNOWN
        if isinstance(given, Raw):
            step = self.declared()
            return self.delivery.reader.given(given, step.result_type, what=f"result of step {step.name!r}")
        return self.result(self.attempt_event.step)
