"""Carrying out one begun delivery: ask, run the body, and say what came of it as an event.

Nothing here writes to the database. Whatever a body does - return, raise, return nonsense - becomes one event for
the machine; only a lost lease becomes none.

What to do is a generator of calls of the saga's own functions, which knows nothing of who makes them: `perform` makes
them in the calling thread, one after the other, `aperform` awaits those that are `async def`.
"""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from sagas import errors
from sagas.body import Body, GuardFor
from sagas.calls import Call, Calls, awaited, throwable
from sagas.duty import SagaClass, duty_for
from sagas.events import Answer as AnswerEvent
from sagas.events import (
    Attempt,
    Blocked,
    Chosen,
    Direction,
    Failed,
    Refused,
    Skipped,
    Source,
    Succeeded,
    Undecided,
    Unstorable,
    Waits,
)
from sagas.failure import clean
from sagas.family import beget
from sagas.guard import Apart
from sagas.inline import run_here
from sagas.locks import SemanticLock
from sagas.machine import step_of
from sagas.outcome import NOT_DONE, ContinueAs, Skip
from sagas.points import Point, reached
from sagas.ports import LocalTransaction
from sagas.requests import to_continue
from sagas.store.rows import Delivery
from sagas.takeover import Argument, Ask, Beget, Choose, Memory, Misplaced, Run, Wait, assess
from sagas.threads import Clock, Threads
from sagas.unrun import found_undone, undone, unrun
from sagas.waits import Wait as WaitStep

NULL = Raw(b"null")
MAX_REASON = 2000  # characters

Found = AnswerEvent | Misplaced | None


THROUGH = (errors.LeaseLost, KeyboardInterrupt)  # no outcomes of a step
WaitFor = Callable[[Coroutine[Any, Any, Any]], Any]


def perform(
    delivery: Delivery,
    definition: SagaClass,
    *,
    limit: int,
    alive: Callable[[], bool],
    guard: GuardFor | None,
    transaction: LocalTransaction | None = None,
    wait_for: WaitFor = run_here,
    apart: Apart | None = None,
) -> Found:
    """Do what a begun delivery calls for and say what came of it.

    Args:
        delivery: a begun row of a step.
        definition: its saga class.
        limit: bytes that a result may take.
        alive: whether the lease is still held.
        guard: makes the guard for `effect()`; None in a local step.
        transaction: of a local step: its session, and where it takes its semantic locks.
        wait_for: runs an `async def`, and returns what that returned.
        apart: where such a function waits for the database; None: it runs alone.

    Returns:
        The event to decide about; `Misplaced` for a row that stands for no work; None when the lease was lost.
    """
    body = Body(
        delivery=delivery, definition=definition, attempt_event=_begins(delivery), limit=limit,
        lent=None if transaction is None else transaction.session,
        alive=alive, guard=guard, transaction=transaction, apart=apart,
    )  # fmt: skip
    calls = _perform(body)
    try:
        call = next(calls)
        while True:
            body.awaits = call.awaited
            try:
                found = call.function(*call.arguments)
                if call.awaited and inspect.iscoroutine(found):
                    for load in body.ahead():
                        load()
                    found = wait_for(found)
            except BaseException as problem:
                call = calls.throw(throwable(problem))
            else:
                call = calls.send(found)
    except StopIteration as end:
        event: Found = end.value
        return event
    finally:
        delivery.reader.forget()


async def aperform(
    delivery: Delivery,
    definition: SagaClass,
    *,
    limit: int,
    alive: Callable[[], bool],
    guard: GuardFor,
    threads: Threads,
    clock: Clock,
) -> Found:
    """The twin of `perform` for a body that is `async def`.

    Args:
        delivery: as for `perform`, like `definition`, `limit`, `alive` and `guard`.
        definition: its saga class.
        limit: bytes that a result may take.
        alive: whether the lease is still held.
        guard: makes the guard for `aeffect()`.
        threads: call what waits for the database, or a `resolve` that is none of `async def`.
        clock: runs around each call, and says how many seconds it may take, after which it is cancelled.
    """
    body = Body(
        delivery=delivery, definition=definition, attempt_event=_begins(delivery), limit=limit, alive=alive,
        guard=guard, apart=threads.apart,
    )  # fmt: skip
    calls = _perform(body)
    try:
        for load in body.ahead():
            await threads.apart(load)
        call = next(calls)
        while True:
            body.awaits = call.awaited
            try:
                found = await awaited(call, clock, threads)
            except GeneratorExit:  # the process ends
                calls.close()
                raise
            except BaseException as problem:
                call = calls.throw(problem)
            else:
                call = calls.send(found)
    except StopIteration as end:
        event: Found = end.value
        return event
    finally:
        delivery.reader.forget()


def to_await(delivery: Delivery, definition: SagaClass) -> bool:
    """Whether a function of the saga is to be called now, and not only something decided."""
    assert delivery.attempt is not None
    action = assess(definition.plan, delivery.state, _begins(delivery), memory=delivery.memory)
    return isinstance(action, Run | Ask)


def _begins(delivery: Delivery) -> Attempt:
    """The delivery as the machine is told of it."""
    assert delivery.attempt is not None
    return replace(delivery.attempt, jitter=random.random(), now=_now(delivery))


def _perform(body: Body) -> Calls:
    """Returns what came of it (`Found`)."""
    try:
        return (yield from _carry_out(body))
    except errors.LeaseLost:
        return None


def _carry_out(body: Body) -> Calls:
    delivery = body.delivery
    action = assess(body.definition.plan, delivery.state, body.attempt_event, memory=delivery.memory)
    if delivery.misfit and isinstance(action, Run | Ask | Choose | Wait | Beget):
        return body.failed(errors.Misfit(delivery.misfit), began=False)
    if isinstance(action, Ask):
        action = yield from _ask(body)
    if isinstance(action, Run):
        return _as_of_now(delivery, (yield from _run(body, action)))
    if isinstance(action, Choose):
        return _as_of_now(delivery, _choose(body))
    if isinstance(action, Wait):
        return _wait(body)
    return beget(body) if isinstance(action, Beget) else action


def _now(delivery: Delivery) -> float:
    """Epoch seconds, as the database clock has them."""
    assert delivery.attempt is not None
    return delivery.attempt.now + time.monotonic() - delivery.begun_at


def _as_of_now(delivery: Delivery, found: AnswerEvent | None) -> AnswerEvent | None:
    """What came of a body, at the time at which it did: the saga's deadline may have passed meanwhile."""
    if delivery.state.deadline is None:
        return found
    return None if found is None else replace(found, attempt=replace(found.attempt, now=_now(delivery)))


def _choose(body: Body) -> AnswerEvent:
    """Look at the step's condition; what came of it is recorded before anything of the step begins."""
    event, when = body.attempt_event, body.declared().options.when
    assert when is not None
    try:
        found = when(body.definition._for_run(body))
        if said := unrun(found):  # which would count as true
            raise TypeError(f"when= of step {event.step!r} returned {said}; it is no `async def`")
    except THROUGH:
        raise
    except BaseException as problem:
        return body.failed(problem, began=False)
    if found and not isinstance(found, Skip):
        return Chosen(event)
    return Skipped(event, clean(found.reason, MAX_REASON) if isinstance(found, Skip) else "its condition is false")


def _wait(body: Body) -> AnswerEvent:
    """Find out until when to wait."""
    event, wait = body.attempt_event, body.declared()
    assert isinstance(wait, WaitStep)
    try:
        return Waits(event, wait.ends(body.definition._for_run(body), event.now))
    except THROUGH:
        raise
    except BaseException as problem:
        return body.failed(problem, began=False)


def _ask(body: Body) -> Calls:
    """Call `resolve`: an answer is an event, NOT_DONE is one more assessment."""
    event, step = body.attempt_event, body.declared()
    undoing = event.direction is Direction.UNDO
    generation = 0 if undoing else step_of(body.delivery.state, step.name).generation
    body.keyed = Direction.UNDO if undoing else Direction.DO, generation
    try:
        found = yield _resolver(body, undoing)
    except errors.Undecided as undecided:
        return Undecided(event, body.error_text(undecided))
    except THROUGH:
        raise
    except BaseException as problem:
        return Undecided(event, body.error_text(problem))
    plan, state = body.definition.plan, body.delivery.state
    if found is NOT_DONE:
        return assess(plan, state, event, not_done=True)
    if undoing:
        return found_undone(event, found, body)
    if isinstance(found, ContinueAs) and event.direction is Direction.DO:
        return _continue(body, found, Source.RESOLVE)
    stored = _store(body, found)
    if isinstance(stored, Unstorable):
        return stored if event.direction is Direction.DO else Undecided(event, stored.error)
    if event.direction is Direction.SETTLE:
        return assess(plan, state, event, memory=Memory(response=stored))
    return Succeeded(event, stored, Source.RESOLVE)


def _resolver(body: Body, undoing: bool) -> Call:
    run = body.definition._for_run(body)
    step = body.declared()
    if not undoing:
        assert step.resolver is not None
        return Call(step.resolver, (run,), step.asks_awaited)
    assert step.undo is not None and step.undo.resolver is not None
    known = step_of(body.delivery.state, step.name).result is not None
    argument = body.argument(Argument.RESULT if known else Argument.UNKNOWN)
    return Call(step.undo.resolver, (run, argument), step.undo.asks_awaited)


def _run(body: Body, action: Run) -> Calls:
    event = body.attempt_event
    duty = duty_for(body.definition, event.step, event.direction)
    step, label, going_forward = duty.step, duty.label, event.direction is Direction.DO
    body.keyed = Direction.DO if going_forward else Direction.UNDO, action.generation
    if going_forward and step.options.lock is not None:
        blocked = yield from _take(body, step.options.lock)
        if blocked is not None:
            return blocked
        reached(Point.AFTER_LOCK, label)
    reached(Point.BEFORE_BODY, label)
    try:
        run = body.definition._for_run(body)
        if going_forward:
            outcome = yield Call(step.body, (run,), step.awaited)
        else:
            assert step.undo is not None
            outcome = yield Call(step.undo.body, (run, body.argument(action.argument)), step.undo.awaited)
    except errors.Refused as refused:
        return Refused(event, body.error_text(refused), partly=body.effects > 0)
    except errors.Unstorable as problem:  # of an effect() that happened
        return body.failed(problem, give_up=True) if not going_forward else Unstorable(event, body.error_text(problem))
    except THROUGH:
        raise
    except BaseException as problem:  # asyncio's CancelledError is no Exception; the batch has to go on
        retry = step.plan.retry if going_forward or step.plan.undo is None else step.plan.undo.retry
        return body.failed(problem, give_up=isinstance(problem, retry.give_up_on))
    reached(Point.AFTER_BODY, label)
    if not going_forward:
        return undone(event, outcome, body)
    if isinstance(outcome, ContinueAs):
        return _continue(body, outcome)
    stored = _store(body, outcome)
    if isinstance(stored, Raw):
        return Succeeded(event, stored)
    return stored if step.external else Failed(event, stored.error, give_up=True)


def _take(body: Body, lock: SemanticLock) -> Calls:
    """Take what the step is to hold: None, or the event that says why not. Its body has not begun."""
    event = body.attempt_event
    try:
        subjects = lock.subjects(body.definition._for_run(body))
        blocker = yield Call(body.take, (subjects, lock.wait), False, ours=True)
    except THROUGH:
        raise
    except BaseException as problem:
        track = step_of(body.delivery.state, event.step).do
        earlier = event.lost or track.unknown or track.doubted
        return body.failed(problem, began=bool(earlier))
    if blocker is None:
        return None
    return Blocked(event, blocker.subject, str(blocker), lock.wait, blocker.held)


def _continue(body: Body, outcome: ContinueAs, source: Source = Source.BODY) -> AnswerEvent:
    """The step has happened, and the saga that goes on from here is started when that is recorded."""
    try:
        if body.declared() is not body.definition.steps[-1]:
            raise errors.Unstorable(f"step {body.declared().name!r}: only the last step may return ContinueAs")
        following = to_continue(body.definition, body.id, body.head, outcome.input, limit=body.limit,
                                payloads=body.delivery.reader.payloads)  # fmt: skip
    except (errors.CodecError, errors.Unstorable) as problem:
        text = body.error_text(problem)
        going_on = body.declared().external
        return Unstorable(body.attempt_event, text) if going_on else Failed(body.attempt_event, text, give_up=True)
    return Succeeded(body.attempt_event, NULL, source, next=following)


def _store(body: Body, outcome: Any, of: str = "") -> Raw | Unstorable:
    step = body.declared()
    try:
        raw = body.delivery.reader.payloads.store(
            outcome, step.result_type, limit=body.limit, what=f"result of step {step.name!r}", error=errors.Unstorable,
            of=of,
        )  # fmt: skip
    except errors.CodecError as refused:
        problem = refused
        if said := unrun(outcome):
            problem = errors.Unstorable(f"result of step {step.name!r}: {said}")
        elif not of:  # once more, so that the message says which saga it is about
            return _store(body, outcome, of=body.delivery.label)
        return Unstorable(body.attempt_event, body.error_text(problem))
    return Raw(raw)
