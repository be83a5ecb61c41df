"""What callers give, checked before anything is sent, as the requests that the SQL functions take."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import uuid_utils.compat as uuid_utils
from msgspec import Raw

from sagas import codec, errors, machine, tracing
from sagas.definition import OnExisting, Saga
from sagas.events import ABOUT_A_STEP, OPERATIONS, Continuation, Start
from sagas.failure import clean
from sagas.head import Head
from sagas.keys import id_of_next
from sagas.options import MOST_PRIORITY
from sagas.payloads import PLAIN, Payloads
from sagas.plan import Plan
from sagas.ports import Caller
from sagas_outbox.encoding import briefly

MAX_KEY = 255  # characters; a btree key has a limit of its own
MAX_SUBJECT = 500  # characters of its primary key; they are indexed
MAX_HEADERS = 4096  # bytes
MAX_REASON = 2000  # characters


def to_start(
    caller: Caller,
    definition: type[Saga[Any]],
    input: Any,
    *,
    key: str | None,
    subject: object,
    on_existing: OnExisting,
    headers: Mapping[str, str] | None,
    deadline: timedelta | datetime | None,
    priority: int = 0,
    ordering_key: str | None = None,
) -> tuple[dict[str, Any], bytes]:
    """Everything `start()` writes, and the encoded input.

    Raises:
        InvalidInput: something cannot be stored; `path` names it.
        PayloadTooLarge: the input takes too many bytes.
    """
    if not isinstance(on_existing, OnExisting):  # a text would be taken for RETURN
        known = ", ".join(f"OnExisting.{each.name}" for each in OnExisting)
        raise errors.InvalidInput(f"on_existing={briefly(on_existing)}: pass one of {known}", path="on_existing")
    settings = caller.settings
    raw = codec.encode(
        input, declared=definition.input_type, limit=settings.max_payload, of=_named(definition)
    )  # fmt: skip
    stored = settings.payloads.seal(raw, definition.input_type)
    id = uuid_utils.uuid7()
    key = str(id) if key is None else text(key, "key", MAX_KEY)
    given = tracing.headers() | _headers(headers)
    subject_type, subject_id = _subject(caller, subject)
    head = Head(
        name=definition.saga_name, version=definition.saga_version, key=key, input=Raw(stored),
        subject_type=subject_type, subject_id=subject_id, headers=given,
        definition=definition.fingerprint(), hash=settings.payloads.hash_of(raw, stored), priority=_priority(priority),
        ordering_key=None if ordering_key is None else text(ordering_key, "ordering_key", MAX_KEY),
    )  # fmt: skip
    request = _request(definition, head, id) | _deadline(deadline)
    request["run_again_after"] = sorted(machine.UNDONE) if on_existing is OnExisting.NEW_IF_COMPENSATED else []
    return request, raw


def to_continue(
    definition: type[Saga[Any]], former: UUID, before: Head, input: Any, *, limit: int, payloads: Payloads = PLAIN
) -> Continuation:  # fmt: skip
    """The saga that takes over from one that ends.

    Args:
        definition: of both.
        former: the id of the one that ends.
        before: what the one that ends was given.
        input: of the new one.
        limit: bytes that it may take.
        payloads: how it is stored.

    Raises:
        CodecError: the input cannot be stored.
    """
    raw = codec.encode(input, declared=definition.input_type, limit=limit, of=_named(definition))
    stored = payloads.seal(raw, definition.input_type)
    id = id_of_next(former, before.run + 1)
    head = msgspec.structs.replace(
        before, version=definition.saga_version, input=Raw(stored), definition=definition.fingerprint(),
        root=before.root or before.hash or codec.fingerprint(bytes(before.input)),
        hash=payloads.hash_of(raw, stored),
    )  # fmt: skip
    request = _request(definition, head, id) | _deadline(definition.deadline)
    request["run_again_after"] = sorted(machine.GOING_ON)
    return Continuation(id, Raw(msgspec.json.encode(request)))


def _named(definition: type[Saga[Any]]) -> str:
    return f"saga {definition.saga_name} version {definition.saga_version}"


def _request(definition: type[Saga[Any]], head: Head, id: UUID) -> dict[str, Any]:
    decision = machine.decide(definition.plan, None, Start(Raw(msgspec.json.encode(head))))
    return {
        "id": str(id), "name": head.name, "version": head.version, "key": head.key,
        "status": decision.state.status, "seq": decision.state.seq, "steps": decision.state.steps,
        "input_hash": head.root or head.hash or codec.fingerprint(bytes(head.input)),
        "subject_type": head.subject_type, "subject_id": head.subject_id,
        "headers": head.headers, "definition": head.definition,
        "saga": decision.entries[0].data.saga, "rows": decision.rows,
        **({"priority": head.priority} if head.priority else {}),
        **({"ordering_key": head.ordering_key} if head.ordering_key else {}),
    }  # fmt: skip


def to_find(name: str | None, key: str | None, id: UUID | None) -> dict[str, str | None]:
    """Which saga is meant.

    Raises:
        TypeError: neither or both of key and id were given.
        InvalidInput: one of them cannot be right.
    """
    if (key is None) == (id is None):
        raise TypeError("give either key= or id=")
    if id is not None and not isinstance(id, UUID):
        raise errors.InvalidInput(f"id={briefly(id)}: a UUID, not {type(id).__name__}", path="id")
    return {
        "name": None if name is None else text(name, "name", MAX_KEY),
        "key": None if key is None else text(key, "key", MAX_KEY),
        "id": None if id is None else str(id),
    }


def check_kind(plan: Plan, kind: str, step: str) -> None:
    """See to it that a request is one that workers know, and is about a step if it has to be.

    Raises:
        InvalidInput: there is no such kind, or one that is about a step, without a step of the saga.
    """
    if not isinstance(kind, str) or kind not in OPERATIONS:
        raise errors.InvalidInput(f"kind={briefly(kind)}: one of {', '.join(OPERATIONS)}", path="kind")
    if not isinstance(step, str) or ((kind in ABOUT_A_STEP or step) and step not in plan.by_name):
        raise errors.InvalidInput(
            f"step={briefly(step)}: {kind} of saga {plan.name} is about one of {', '.join(plan.by_name)}", path="step"
        )


def check_seen(seen: object) -> None:
    """See to it that a saga is said to have been looked at in a state that can be one.

    Raises:
        InvalidInput: it is no number of a log entry.
    """
    if seen is not None and not (isinstance(seen, int) and not isinstance(seen, bool) and 0 <= seen < 2**31):
        raise errors.InvalidInput(f"seen={briefly(seen)}: `seq` of the saga as it was looked at", path="seen")


def result_of(caller: Caller, definition: type[Saga[Any]], step: str, given: object) -> Raw:
    """The result that an operator gives a step, as it is stored; checked against the step's type.

    Raises:
        InvalidInput: it is not of that type, or cannot be stored.
    """
    declared = next(each for each in definition.steps if each.name == step)
    settings = caller.settings
    return Raw(settings.payloads.store(
        given, declared.result_type, limit=settings.max_payload, what=f"result of step {step!r}",
        of=_named(definition),
    ))  # fmt: skip


def text(value: object, what: str, most: int) -> str:
    """A text that can be stored.

    Args:
        value: what the user gave.
        what: the name of the argument.
        most: characters it may have.

    Raises:
        InvalidInput: it is no text, empty, too long, or has characters that Postgres refuses.
    """
    if not isinstance(value, str):
        raise errors.InvalidInput(f"{what}={briefly(value)}: a str, not {type(value).__name__}", path=what)
    if not value or len(value) > most:
        raise errors.InvalidInput(f"{what}: 1 to {most} characters, not {len(value)}; hash longer ones", path=what)
    plain = str.__str__(value)  # not a subclass, such as a safe string of Django
    if clean(plain, most) != plain:
        raise errors.InvalidInput(f"{what}: has a NUL or a lone surrogate, which Postgres cannot store", path=what)
    return plain


def optional(value: object, what: str, most: int) -> str:
    """The same, or an empty text."""
    return "" if isinstance(value, str) and not value else text(value, what, most)


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


def _deadline(deadline: object) -> dict[str, Any]:
    if deadline is None:
        return {}
    if isinstance(deadline, timedelta) and timedelta(0) < deadline <= timedelta(days=3650):
        return {"deadline": deadline.total_seconds()}
    if isinstance(deadline, datetime) and deadline.tzinfo is not None and 1970 < deadline.year < 9000:
        return {"deadline_at": deadline}
    raise errors.InvalidInput(
        f"deadline={briefly(deadline)}: a timedelta above 0 and up to ten years, or an aware datetime "
        f"from 1971 to 8999",
        path="deadline",
    )


def _priority(priority: object) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int) or not -MOST_PRIORITY <= priority <= MOST_PRIORITY:
        raise errors.InvalidInput(
            f"priority={briefly(priority)}: a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}", path="priority"
        )
    return priority


def _headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    if headers is not None and not isinstance(headers, Mapping):
        raise errors.InvalidInput(f"headers={briefly(headers)}: a dict of texts, or none", path="headers")
    given = {
        text(name, "headers", 100): optional(value, f"headers[{name!r}]", MAX_HEADERS)
        for name, value in (headers or {}).items()
    }
    if len(msgspec.json.encode(given)) > MAX_HEADERS:
        raise errors.InvalidInput(f"headers: more than {MAX_HEADERS} bytes; they are for trace context", path="headers")
    return given
