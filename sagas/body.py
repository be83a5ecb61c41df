"""Carrying out one begun delivery: ask, run the body, and say what came of it as an event.

Nothing here writes to the database. Whatever a body does - return, raise, return nonsense - becomes
one event for the machine; only a lost lease becomes none.
"""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from sagas import codec, errors
from sagas.definition import Saga
from sagas.events import Answer as AnswerEvent
from sagas.events import Attempt, Direction, Failed, Refused, Source, Succeeded, Undecided, Unstorable
from sagas.failure import error_text
from sagas.fold import track_of
from sagas.guard import Guard
from sagas.head import Head, read_head
from sagas.keys import idempotency_key
from sagas.machine import step_of
from sagas.outcome import NOT_DONE, UNKNOWN
from sagas.points import Point, reached
from sagas.step import Step, StepRun
from sagas.store.rows import Delivery, facts_of
from sagas.takeover import Argument, Ask, Memory, Misplaced, Run, assess

NULL = Raw(b"null")
SagaClass = type[Saga[Any]]
GuardFor = Callable[[Delivery, str], Guard]  # for an attempt and its idempotency key


_steps: dict[SagaClass, Mapping[str, Step[Any, Any]]] = {}


def step_named(definition: SagaClass, name: str) -> Step[Any, Any]:
    """One declared step of a definition."""
    steps = _steps.get(definition)
    if steps is None:
        steps = _steps[definition] = {step.name: step for step in definition.steps}
    return steps[name]


@dataclass(slots=True, kw_only=True)
class Body:
    """What one body is told about its saga (`RunContext`), and the means to run it."""

    delivery: Delivery
    definition: SagaClass
    attempt_event: Attempt
    limit: int  # bytes of a result
    session: Any = None
    alive: Callable[[], bool]
    guard: GuardFor | None  # None: a local step
    idempotency_key: str = ""
    effects: int = 0  # of this attempt that have their answer
    read: Any = UNSET  # the input, once it was asked for

    def declared(self) -> Step[Any, Any]:
        """The step that is at work."""
        return step_named(self.definition, self.attempt_event.step)

    @property
    def head(self) -> Head:
        return read_head(_set(facts_of(self.delivery.history[0]).saga))

    @property
    def input(self) -> Any:
        if self.read is UNSET:
            self.read = codec.decode(self.head.input, self.definition.input_type, what="input")
        return self.read

    @property
    def id(self) -> UUID:
        return self.delivery.saga_id

    @property
    def key(self) -> str:
        return self.delivery.key

    @property
    def attempt(self) -> int:
        track = track_of(step_of(self.delivery.state, self.attempt_event.step), self.attempt_event.direction)
        return track.attempts + self.attempt_event.deliveries

    @property
    def headers(self) -> Mapping[str, str]:
        return self.head.headers

    def step_run(self, name: str) -> StepRun[Any]:
        state = step_of(self.delivery.state, name)
        load = None if state.result is None else (lambda: self.result(name))
        return StepRun(
            name=name, status=state.status.value, attempts=state.do.attempts,
            idempotency_key=idempotency_key(self.id, name), load=load,
        )  # fmt: skip

    def result(self, name: str) -> Any:
        """The stored result of a step, decoded anew each time, so that no body sees another's changes to it."""
        seq = step_of(self.delivery.state, name).result
        assert seq is not None
        raw = _set(facts_of(self.delivery.history[seq]).result)
        return codec.decode(raw, step_named(self.definition, name).result_type, what=f"result of step {name!r}")

    def effect(self, name: str, call: Callable[[str], Any], *, returns: Any, request: object = None) -> Any:
        if self.guard is None:
            raise errors.ConfigurationError(
                f"{self.delivery.label}: effect() is for external steps; what a local step writes is exactly once "
                f"by itself, and what reaches other systems belongs in an @external_step"
            )
        self.heartbeat()
        found = self.guard(self.delivery, self.idempotency_key).effect(name, call, returns=returns, request=request)
        self.effects += 1
        return found

    def heartbeat(self) -> None:
        if not self.alive():
            raise errors.LeaseLost(
                f"{self.delivery.label}: the lease is lost, another worker may have taken over; stop without further "
                f"side effects, whatever this attempt did is found out by the next one"
            )

    def argument(self, given: Argument | Raw | None) -> Any:
        """What the compensation is called with."""
        if given is Argument.UNKNOWN:
            given = self.delivery.late or given
        if given is Argument.UNKNOWN:
            return UNKNOWN
        if isinstance(given, Raw):
            return codec.decode(given, self.declared().result_type, what=f"result of step {self.declared().name!r}")
        return self.result(self.attempt_event.step)


def perform(
    delivery: Delivery,
    definition: SagaClass,
    *,
    limit: int,
    session: Any,
    alive: Callable[[], bool],
    guard: GuardFor | None,
) -> AnswerEvent | Misplaced | None:
    """Do what a begun delivery calls for and say what came of it.

    Args:
        delivery: a begun row of a step.
        definition: its saga class.
        limit: bytes that a result may take.
        session: what local steps get as `self.session`.
        alive: whether the lease is still held.
        guard: makes the guard for `effect()`; None in a local step.

    Returns:
        The event to decide about; `Misplaced` for a row that stands for no work; None when the lease was lost.
    """
    assert delivery.attempt is not None
    event = replace(
        delivery.attempt, jitter=random.random(), now=delivery.attempt.now + time.monotonic() - delivery.begun_at
    )  # fmt: skip
    body = Body(
        delivery=delivery, definition=definition, attempt_event=event, limit=limit, session=session, alive=alive,
        guard=guard,
    )  # fmt: skip
    action = assess(definition.plan, delivery.state, event, memory=delivery.memory)
    if isinstance(action, Ask):
        action = _ask(body)
    if isinstance(action, Run):
        return _run(body, action)
    return action


def _ask(body: Body) -> Any:
    """Call `resolve`: an answer is an event, NOT_DONE is one more assessment."""
    event, step = body.attempt_event, body.declared()
    undoing = event.direction is Direction.UNDO
    body.idempotency_key = idempotency_key(body.id, step.name, "undo" if undoing else "do")
    try:
        found = _call_resolver(body, undoing)
    except errors.Undecided as undecided:
        return Undecided(event, error_text(undecided))
    except errors.LeaseLost:
        return None
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        return Undecided(event, error_text(problem))
    plan, state = body.definition.plan, body.delivery.state
    if found is NOT_DONE:
        return assess(plan, state, event, not_done=True)
    if undoing:
        return Succeeded(event, NULL, Source.RESOLVE)
    stored = _store(body, found)
    if isinstance(stored, Unstorable):
        return stored if event.direction is Direction.DO else Undecided(event, stored.error)
    if event.direction is Direction.SETTLE:
        return assess(plan, state, event, memory=Memory(response=stored))
    return Succeeded(event, stored, Source.RESOLVE)


def _call_resolver(body: Body, undoing: bool) -> Any:
    run = body.definition._for_run(body)
    step = body.declared()
    if not undoing:
        assert step.resolver is not None
        return step.resolver(run)
    assert step.undo is not None and step.undo.resolver is not None
    known = step_of(body.delivery.state, step.name).result is not None
    return step.undo.resolver(run, body.argument(Argument.RESULT if known else Argument.UNKNOWN))


def _run(body: Body, action: Run) -> AnswerEvent | None:
    event, step = body.attempt_event, body.declared()
    going_forward = event.direction is Direction.DO
    body.idempotency_key = idempotency_key(body.id, step.name, "do" if going_forward else "undo", action.generation)
    label = f"{step.name}:{event.direction}"
    reached(Point.BEFORE_BODY, label)
    try:
        run = body.definition._for_run(body)
        if going_forward:
            outcome = step.body(run)
        else:
            assert step.undo is not None
            step.undo.body(run, body.argument(action.argument))
            outcome = None
    except errors.Refused as refused:
        return Refused(event, error_text(refused), partly=body.effects > 0)
    except errors.LeaseLost:
        return None
    except errors.Unstorable as problem:  # of an effect() that happened
        text = error_text(problem)
        return Unstorable(event, text) if going_forward else Failed(event, text, give_up=True)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # asyncio's CancelledError is no Exception; the batch has to go on
        retry = step.plan.retry if going_forward or step.plan.undo is None else step.plan.undo.retry
        return Failed(event, error_text(problem), give_up=isinstance(problem, retry.give_up_on))
    reached(Point.AFTER_BODY, label)
    if not going_forward:
        return Succeeded(event, NULL)
    stored = _store(body, outcome)
    if isinstance(stored, Raw):
        return Succeeded(event, stored)
    return stored if step.external else Failed(event, stored.error, give_up=True)


def _store(body: Body, outcome: Any) -> Raw | Unstorable:
    step = body.declared()
    try:
        if inspect.isawaitable(outcome) or inspect.isgenerator(outcome):
            if inspect.iscoroutine(outcome):
                outcome.close()  # or Python warns about it long after, in some other place
            raise errors.Unstorable(f"result of step {step.name!r}: a {type(outcome).__name__} that nobody ran")
        raw = codec.encode(
            outcome, declared=step.result_type, limit=body.limit, what=f"result of step {step.name!r}",
            error=errors.Unstorable,
        )  # fmt: skip
    except errors.CodecError as problem:
        return Unstorable(body.attempt_event, error_text(problem))
    return Raw(raw)


def _set(raw: Raw | msgspec.UnsetType) -> Raw:
    if isinstance(raw, msgspec.UnsetType):
        raise errors.CodecError("the log entry that should hold it is empty; run `sagas verify` on this saga")
    return raw
