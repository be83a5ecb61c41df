"""What callers do with sagas: start, look, ask for a cancel. Callers only insert rows; workers apply them.

Every statement runs on the caller's own connection, inside whatever transaction is open there. Nothing
here commits, opens a transaction, or waits for a worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import uuid_utils.compat as uuid_utils
from msgspec import Raw

from sagas import codec, errors, machine, ports
from sagas.definition import OnExisting, Saga
from sagas.events import Start
from sagas.failure import clean
from sagas.head import Head
from sagas.ports import Caller
from sagas.registry import registry
from sagas.states import Status, StepState
from sagas_outbox.queries import query

PACKAGE = "sagas.store"
MAX_KEY = 255  # characters; a btree key has a limit of its own
MAX_SUBJECT = 500  # characters of its primary key; they are indexed
MAX_HEADERS = 4096  # bytes
MAX_REASON = 2000  # characters

SagaClass = type[Saga[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class SagaRun:
    """One saga as the outside sees it. It does not change; `get()` gives a newer one."""

    id: UUID
    name: str
    version: int
    key: str
    run: int  # 1, or higher when a key was used again after its saga had been undone
    status: Status
    created: bool = False  # whether the call that returned this started it
    seq: int = 0
    steps: Mapping[str, StepState] | None = None
    error: str = ""
    cancel_requested: bool = False
    parked_from: Status | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    finished_at: datetime | None = None


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
) -> SagaRun:
    """Start a saga on the caller's connection. See `Saga.start`."""
    caller = ports.caller(using)
    request, encoded = _request(definition, input, key, subject, headers, caller)
    request["run_again_after"] = sorted(machine.UNDONE) if on_existing is OnExisting.NEW_IF_COMPENSATED else []
    if not own_transaction and not caller.in_transaction():
        raise errors.NotInTransaction(
            f"{definition.__name__}.start(): no transaction is open on {caller.name}, so the business change and the "
            f"saga could part; call it inside one, or pass own_transaction=True when there is no business change"
        )
    answer = _answer(caller, query(PACKAGE, "start"), request)
    if answer["created"]:
        caller.after_commit(caller.wake)
        return SagaRun(
            id=UUID(answer["id"]), name=definition.saga_name, version=definition.saga_version, key=request["key"],
            run=answer["run"], status=Status(request["status"]), created=True,
        )  # fmt: skip
    if on_existing is OnExisting.RAISE or not _same_input(definition, caller, answer, request, encoded):
        raise errors.KeyConflict(
            f"saga {definition.saga_name} with key {request['key']!r} exists ({answer['id']}, {answer['status']}) and "
            + ("on_existing=RAISE" if on_existing is OnExisting.RAISE else "was started with another input")
            + "; choose another key, or use get() to look at it"
        )
    return SagaRun(
        id=UUID(answer["id"]), name=definition.saga_name, version=answer["version"], key=request["key"],
        run=answer["run"], status=Status(answer["status"]),
    )  # fmt: skip


def _request(
    definition: SagaClass,
    input: Any,
    key: str | None,
    subject: object,
    headers: Mapping[str, str] | None,
    caller: Caller,
) -> tuple[dict[str, Any], bytes]:
    """Everything `start()` writes, checked before anything is sent."""
    raw = codec.encode(input, declared=definition.input_type, limit=caller.settings.max_payload)
    id = uuid_utils.uuid7()
    key = str(id) if key is None else _text(key, "key", MAX_KEY)
    subject_type, subject_id = _subject(caller, subject)
    given = _headers(headers)
    head = Head(
        name=definition.saga_name, version=definition.saga_version, key=key, input=Raw(raw),
        subject_type=subject_type, subject_id=subject_id, headers=given,
    )  # fmt: skip
    decision = machine.decide(definition.plan, None, Start(Raw(msgspec.json.encode(head))))
    return {
        "id": str(id), "name": head.name, "version": head.version, "key": key,
        "status": decision.state.status, "seq": decision.state.seq, "steps": decision.state.steps,
        "input_hash": codec.fingerprint(raw), "subject_type": subject_type, "subject_id": subject_id,
        "headers": given, "saga": decision.entries[0].data.saga, "rows": decision.rows,
    }, raw  # fmt: skip


def _text(value: object, what: str, most: int) -> str:
    if not isinstance(value, str):
        raise errors.InvalidInput(f"{what}={value!r}: a str, not {type(value).__name__}", path=what)
    if not value or len(value) > most:
        raise errors.InvalidInput(f"{what}: 1 to {most} characters, not {len(value)}; hash longer ones", path=what)
    if clean(value, most) != value:
        raise errors.InvalidInput(f"{what}: has a NUL or a lone surrogate, which Postgres cannot store", path=what)
    return value


def _subject(caller: Caller, subject: object) -> tuple[str | None, str | None]:
    if subject is None:
        return None, None
    found = caller.subject(subject)
    if found is None:
        raise errors.InvalidInput(
            f"subject={type(subject).__name__}: not a model instance that {caller.name} knows", path="subject"
        )
    if len(found[1]) > MAX_SUBJECT:
        raise errors.InvalidInput(
            f"subject: a primary key of {len(found[1])} characters, {MAX_SUBJECT} are allowed; "
            f"leave subject= out and find the saga by its key",
            path="subject",
        )
    return found


def _headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    given = dict(headers or {})
    for name, value in given.items():
        _text(name, "headers", 100)
        if value != "":
            _text(value, f"headers[{name!r}]", MAX_HEADERS)
    if len(msgspec.json.encode(given)) > MAX_HEADERS:
        raise errors.InvalidInput(f"headers: more than {MAX_HEADERS} bytes; they are for trace context", path="headers")
    return given


def _same_input(
    definition: SagaClass, caller: Caller, answer: dict[str, Any], request: dict[str, Any], encoded: bytes
) -> bool:  # fmt: skip
    if answer["input_hash"] == request["input_hash"]:
        return True
    stored = caller.fetch(query(PACKAGE, "input_of"), answer["id"])
    return stored is not None and codec.same_input(stored, encoded, definition.input_type)


def _answer(caller: Caller, sql: str, request: dict[str, Any]) -> Any:
    text = caller.fetch(sql, msgspec.json.encode(request).decode())
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


def get(definition: SagaClass, *, key: str | None = None, id: UUID | None = None, using: Any = None) -> SagaRun:
    """One saga as it stands. See `Saga.get`."""
    return find(definition.saga_name, key=key, id=id, using=using)


def find(name: str | None, *, key: str | None = None, id: UUID | None = None, using: Any = None) -> SagaRun:
    """One saga by id, or by name and key (the latest run).

    Raises:
        SagaNotFound: there is none.
        TypeError: neither or both of key and id were given.
    """
    caller = ports.caller(using)
    text = caller.fetch(query(PACKAGE, "get"), msgspec.json.encode(_wanted(name, key, id)).decode())
    if text is None:
        raise errors.SagaNotFound(_missing(name, key, id, caller))
    found = msgspec.json.decode(text, type=_Found)
    if name is not None and found.name != name:
        raise errors.SagaNotFound(f"saga {id} on {caller.name} is a {found.name}, not a {name}; use its own class")
    return SagaRun(**{field: getattr(found, field) for field in _Found.__struct_fields__})


def cancel(
    definition: SagaClass, *, key: str | None = None, id: UUID | None = None, reason: str, using: Any = None
) -> None:
    """Ask for a saga to be undone. See `Saga.cancel`."""
    request(definition.saga_name, "cancel", key=key, id=id, reason=reason, using=using)


def request(
    name: str | None,
    kind: str,
    *,
    key: str | None = None,
    id: UUID | None = None,
    reason: str,
    actor: str = "",
    using: Any = None,
) -> SagaRun:
    """Insert a request (cancel, retry, abort) for a worker to apply; returns the saga as it stood before.

    Raises:
        SagaNotFound: there is no such saga.
        UnknownSaga: its definition is not known in this process.
    """
    _text(reason, "reason", MAX_REASON)
    caller = ports.caller(using)
    found = find(name, key=key, id=id, using=using)
    queue = registry.get(found.name, found.version).plan.steps[0].queue
    payload = {"reason": reason, "actor": actor}
    wanted = {"id": str(found.id), "kind": kind, "queue": queue, "payload": payload}
    _answer(caller, query(PACKAGE, "request"), wanted)
    caller.after_commit(caller.wake)
    return found


def _wanted(name: str | None, key: str | None, id: UUID | None) -> dict[str, str | None]:
    if (key is None) == (id is None):
        raise TypeError("give either key= or id=")
    if id is not None and not isinstance(id, UUID):
        raise errors.InvalidInput(f"id={id!r}: a UUID, not {type(id).__name__}", path="id")
    return {
        "name": name,
        "key": None if key is None else _text(key, "key", MAX_KEY),
        "id": None if id is None else str(id),
    }


def _missing(name: str | None, key: str | None, id: UUID | None, caller: Caller) -> str:
    what = f"id {id}" if key is None else f"key {key!r}"
    return (
        f"no saga {name or ''} with {what} on {caller.name}; if it was started just now, was its transaction committed?"
    )
