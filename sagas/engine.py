"""What callers do with sagas: start, look, ask for a cancel. Callers only insert rows; workers apply them.

Every statement runs on the caller's own connection, inside whatever transaction is open there. Nothing
here commits, opens a transaction, or waits for a worker.

Each call is written once, as a generator that yields its statements (`ports.Work`). A function and its
asynchronous twin, with an `a` in front, differ only in who carries it out: `caller.run` or `caller.arun`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from sagas import clock, codec, errors, ports, requests
from sagas.actions import Action, allowed_actions
from sagas.bare import bare_caller
from sagas.definition import OnExisting, Saga
from sagas.events import AS_SEEN
from sagas.ports import Caller, Work
from sagas.registry import registry
from sagas.states import State, Status, StepState
from sagas_outbox.queries import query

PACKAGE = "sagas.store"

SagaClass = type[Saga[Any]]

ports.register_adapter(bare_caller)


@dataclass(frozen=True, kw_only=True, slots=True)
class SagaRun:
    """One saga as the outside sees it. It does not change; `get()` gives a newer one.

    What a step returned is not in it: `PlaceOrder.ship.result_of(id=run.id)` reads that.
    """

    id: UUID
    name: str
    version: int
    key: str
    run: int  # 1, or higher when a key was used again after its saga had been undone
    status: Status
    created: bool = False  # whether the call that returned this started it
    seq: int = 0  # of its last log entry
    steps: Mapping[str, StepState] | None = None  # those that have begun, by name; None: start() does not read them
    error: str = ""  # why it parked or turned back
    cancel_requested: bool = False
    parked_from: Status | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    finished_at: datetime | None = None
    deadline: datetime | None = None  # when it turns back, if it still can
    paused: bool = False
    failing: bool = False  # a step has failed, and others that run beside it come to their end
    deadline_epoch: float | None = None  # seconds

    @property
    def allowed_actions(self) -> tuple[Action, ...]:
        """What may be asked of it as it stood: each with a name for `request()`, and what it would do, in words.

        Raises:
            UnknownSaga: its definition is not known in this process.
            NotPossible: `start()` returned it and it existed before, so that only its status is known.
        """
        if self.steps is None and not self.created:
            raise errors.NotPossible(f"saga {self.name} {self.id}: start() does not read its steps; use get()")
        state = State(
            self.status, self.seq, dict(self.steps or {}), self.cancel_requested, self.parked_from, self.error,
            self.deadline_epoch, self.paused, self.failing,
        )  # fmt: skip
        return allowed_actions(registry.get(self.name, self.version).plan, state)


def start(
    definition: SagaClass,
    input: Any,
    *,
    key: str | None = None,
    subject: object = None,
    using: Any = None,
    on_existing: OnExisting = OnExisting.RETURN,
    own_transaction: bool = False,
    headers: Mapping[str, str] | None = None,
    deadline: timedelta | datetime | None = None,
    priority: int = 0,
    ordering_key: str | None = None,
) -> SagaRun:
    """Start a saga on the caller's connection. See `Saga.start`."""
    caller = ports.caller(using, call=f"{definition.__name__}.start")
    return caller.run(
        _starting(
            caller,
            definition,
            input,
            key,
            subject,
            on_existing,
            own_transaction,
            headers,
            deadline,
            priority,
            ordering_key,
        )
    )


async def astart(
    definition: SagaClass,
    input: Any,
    *,
    key: str | None = None,
    subject: object = None,
    using: Any = None,
    on_existing: OnExisting = OnExisting.RETURN,
    own_transaction: bool = False,
    headers: Mapping[str, str] | None = None,
    deadline: timedelta | datetime | None = None,
    priority: int = 0,
    ordering_key: str | None = None,
) -> SagaRun:
    """Start a saga on the caller's connection. See `Saga.astart`."""
    caller = ports.caller(using, call=f"{definition.__name__}.start", asynchronous=True)
    return await caller.arun(
        _starting(
            caller,
            definition,
            input,
            key,
            subject,
            on_existing,
            own_transaction,
            headers,
            deadline,
            priority,
            ordering_key,
        )
    )


def _starting(
    caller: Caller,
    definition: SagaClass,
    input: Any,
    key: str | None,
    subject: object,
    on_existing: OnExisting,
    own_transaction: bool,
    headers: Mapping[str, str] | None,
    deadline: timedelta | datetime | None,
    priority: int,
    ordering_key: str | None,
) -> Work[SagaRun]:
    # before anything is checked that may flush the subject
    if not own_transaction and not caller.in_transaction():
        raise errors.NotInTransaction(
            f"{definition.__name__}.start(): no transaction is open on {caller.name}, so the business change and the "
            f"saga could part; call it inside one, or pass own_transaction=True when there is no business change"
        )
    request, encoded = requests.to_start(
        caller, definition, input, key=key, subject=subject, on_existing=on_existing, headers=headers,
        deadline=deadline, priority=priority, ordering_key=ordering_key,
    )  # fmt: skip
    answer = yield from _ask("start", request)
    if answer["created"]:
        caller.wake_after_commit()
        return SagaRun(
            id=UUID(answer["id"]), name=definition.saga_name, version=definition.saga_version, key=request["key"],
            run=answer["run"], status=Status(request["status"]), created=True,
        )  # fmt: skip
    same = on_existing is not OnExisting.RAISE and (
        yield from _same_input(caller, definition, answer, request, encoded)
    )
    if not same:
        raise errors.KeyConflict(
            f"saga {definition.saga_name} with key {request['key']!r} exists ({answer['id']}, {answer['status']}) and "
            + ("on_existing=OnExisting.RAISE" if on_existing is OnExisting.RAISE else "was started with another input")
            + "; choose another key, or use get() to look at it"
        )
    return SagaRun(
        id=UUID(answer["id"]), name=definition.saga_name, version=answer["version"], key=request["key"],
        run=answer["run"], status=Status(answer["status"]),
    )  # fmt: skip


def _same_input(
    caller: Caller, definition: SagaClass, answer: dict[str, Any], request: dict[str, Any], encoded: bytes
) -> Work[bool]:  # fmt: skip
    if answer["input_hash"] == request["input_hash"]:
        return True
    stored = yield query(PACKAGE, "input_of"), answer["id"]
    if stored is None:
        return False
    return codec.same_input(caller.settings.payloads.open(stored, what="input"), encoded, definition.input_type)


def _ask(name: str, request: Mapping[str, Any]) -> Work[Any]:
    now = clock.now()
    if now is not None:
        request = {**request, "now": now}
    text = yield query(PACKAGE, name), msgspec.json.encode(request).decode()
    return None if text is None else msgspec.json.decode(text)


class _Found(msgspec.Struct):
    id: UUID
    name: str
    version: int
    key: str
    run: int
    status: Status
    seq: int
    steps: dict[str, StepState]
    error: str
    cancel_requested: bool
    parked_from: Status | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    deadline: datetime | None
    paused: bool
    failing: bool
    deadline_epoch: float | None


def get(definition: SagaClass, *, key: str | None = None, id: UUID | None = None, using: Any = None) -> SagaRun:
    """One saga as it stands. See `Saga.get`."""
    caller = ports.caller(using, call=f"{definition.__name__}.get")
    return caller.run(_finding(caller, definition.saga_name, key, id))


async def aget(definition: SagaClass, *, key: str | None = None, id: UUID | None = None, using: Any = None) -> SagaRun:
    """One saga as it stands. See `Saga.aget`."""
    caller = ports.caller(using, call=f"{definition.__name__}.get", asynchronous=True)
    return await caller.arun(_finding(caller, definition.saga_name, key, id))


def find(name: str | None, *, key: str | None = None, id: UUID | None = None, using: Any = None) -> SagaRun:
    """One saga by id, or by name and key (the latest run).

    Raises:
        SagaNotFound: there is none.
        TypeError: neither or both of key and id were given.
    """
    caller = ports.caller(using, call="find")
    return caller.run(_finding(caller, name, key, id))


async def afind(name: str | None, *, key: str | None = None, id: UUID | None = None, using: Any = None) -> SagaRun:
    """The asynchronous twin of `find`."""
    caller = ports.caller(using, call="find", asynchronous=True)
    return await caller.arun(_finding(caller, name, key, id))


def _finding(caller: Caller, name: str | None, key: str | None, id: UUID | None) -> Work[SagaRun]:
    text = yield query(PACKAGE, "get"), msgspec.json.encode(requests.to_find(name, key, id)).decode()
    if text is None:
        raise errors.SagaNotFound(_missing(name, key, id, caller))
    found = _read(text, caller)
    if name is not None and found.name != name:
        raise errors.SagaNotFound(f"saga {id} on {caller.name} is a {found.name}, not a {name}; use its own class")
    return SagaRun(**{field: getattr(found, field) for field in _Found.__struct_fields__})


def _read(text: str, caller: Caller) -> _Found:
    try:
        return msgspec.json.decode(text, type=_Found)
    except msgspec.MsgspecError as problem:
        saga = msgspec.json.decode(text)
        raise errors.CodecError(
            f"saga {saga['name']} {saga['id']} (key {saga['key']!r}) on {caller.name}: its row cannot be read: "
            f"{problem}; `sagas verify` compares it with its log, `sagas rebuild` makes it again from there"
        ) from problem


def cancel(
    definition: SagaClass, *, key: str | None = None, id: UUID | None = None, reason: str, using: Any = None
) -> None:
    """Ask for a saga to be undone. See `Saga.cancel`."""
    caller = ports.caller(using, call=f"{definition.__name__}.cancel")
    caller.run(_requesting(caller, definition.saga_name, "cancel", key, id, reason, ""))


async def acancel(
    definition: SagaClass, *, key: str | None = None, id: UUID | None = None, reason: str, using: Any = None
) -> None:
    """Ask for a saga to be undone. See `Saga.acancel`."""
    caller = ports.caller(using, call=f"{definition.__name__}.cancel", asynchronous=True)
    await caller.arun(_requesting(caller, definition.saga_name, "cancel", key, id, reason, ""))


def request(
    name: str | None,
    kind: str,
    *,
    key: str | None = None,
    id: UUID | None = None,
    reason: str,
    actor: str = "",
    step: str = "",
    result: Any = None,
    seen: int | None = None,
    using: Any = None,
) -> SagaRun:
    """Insert a request for a worker to apply; returns the saga as it stood before.

    Args:
        name: of the saga class; None: whatever has this id.
        kind: "cancel", "retry", "abort", "redo", "mark_done", "mark_not_done", "skip", "mark_undone", "pause" or
            "resume".
        key: business key of the saga, or
        id: its id.
        reason: why; stored in the log.
        actor: who asks; stored in the log.
        step: the step that it is about: of a "redo", and of what an operator decides about a step.
        result: what the step returned, of its declared type; for "mark_done".
        seen: `seq` of the saga as it was looked at: a "redo", or what is decided about a step, does not count if it
            has moved on since. None: as it stands now.
        using: as for `Saga.start()`.

    Raises:
        InvalidInput: there is no such kind, no step of the saga, or a result that is not of the step's type.
        SagaNotFound: there is no such saga.
        UnknownSaga: its definition is not known in this process.
    """
    caller = ports.caller(using, call="request")
    return caller.run(_requesting(caller, name, kind, key, id, reason, actor, step, result, seen))


async def arequest(
    name: str | None,
    kind: str,
    *,
    key: str | None = None,
    id: UUID | None = None,
    reason: str,
    actor: str = "",
    step: str = "",
    result: Any = None,
    seen: int | None = None,
    using: Any = None,
) -> SagaRun:
    """The asynchronous twin of `request`."""
    caller = ports.caller(using, call="request", asynchronous=True)
    return await caller.arun(_requesting(caller, name, kind, key, id, reason, actor, step, result, seen))


def _requesting(
    caller: Caller, name: str | None, kind: str, key: str | None, id: UUID | None, reason: str, actor: str,
    step: str = "", result: Any = None, seen: int | None = None,
) -> Work[SagaRun]:  # fmt: skip
    reason = requests.text(reason, "reason", requests.MAX_REASON)
    actor = requests.optional(actor, "actor", requests.MAX_KEY)
    found = yield from _finding(caller, name, key, id)
    definition = registry.get(found.name, found.version)
    requests.check_kind(definition.plan, kind, step)
    requests.check_seen(seen)
    queue = definition.plan.steps[0].queue
    payload: dict[str, Any] = {"reason": reason, "actor": actor} | ({"step": step} if step else {})
    if found.finished_at is not None:  # what goes on from it is not meant
        payload["ended"] = True
    if kind in AS_SEEN:
        payload["seen"] = found.seq if seen is None else seen
    if kind == "mark_done":
        payload["value"] = requests.result_of(caller, definition, step, result)
    yield from _ask("request", {"id": str(found.id), "kind": kind, "queue": queue, "payload": payload})
    caller.wake_after_commit()
    return found


def _missing(name: str | None, key: str | None, id: UUID | None, caller: Caller) -> str:
    what = f"id {id}" if key is None else f"key {key!r}"
    return (
        f"no saga {name or ''} with {what} on {caller.name}; if it was started just now, was its transaction committed?"
    )
