"""Sending signals to sagas. Like every call it only inserts rows, on the caller's own connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from msgspec import Raw

from sagas import clock, errors, ports, requests
from sagas.context import Missing
from sagas.ports import Caller, Work
from sagas_outbox.encoding import briefly
from sagas_outbox.queries import query

if TYPE_CHECKING:
    from sagas.waits import Wait

PACKAGE = "sagas.store"
MAX_DEDUPE_ID = 255  # characters


def send(wait: Wait[Any], value: Any, *, using: Any, **given: Any) -> bool:
    """Send a signal. See `Wait.send`."""
    caller = ports.caller(using, call=f"{_name(wait)}.send")
    return caller.run(_sending(caller, wait, value, **given))


def check(wait: Wait[Any], value: Any, *, key: str, dedupe_id: str | None, using: Any) -> None:
    """See to it that a signal could be sent, without sending it. Raises what `Wait.send` does of its arguments."""
    caller = ports.caller(using, call=f"{_name(wait)}.start_or_send")
    _request(caller, wait, value, key, None, dedupe_id, Missing.RAISE, "", "")


async def asend(wait: Wait[Any], value: Any, *, using: Any, **given: Any) -> bool:
    """Send a signal. See `Wait.asend`."""
    caller = ports.caller(using, call=f"{_name(wait)}.send", asynchronous=True)
    return await caller.arun(_sending(caller, wait, value, **given))


def _sending(
    caller: Caller,
    wait: Wait[Any],
    value: Any,
    *,
    key: str | None,
    id: UUID | None,
    dedupe_id: str | None,
    missing: Missing,
    actor: str,
    reason: str,
) -> Work[bool]:
    request = _request(caller, wait, value, key, id, dedupe_id, missing, actor, reason)
    answer = yield query(PACKAGE, "send"), msgspec.json.encode(request).decode()
    if answer is None:
        if missing is Missing.IGNORE:
            return False
        which = f"id {id}" if key is None else f"key {key!r}"
        raise errors.SagaNotFound(
            f"{_name(wait)}.send(): no saga {request['name']} with {which} "
            f"on {caller.name}; if it may come later, pass missing=KEEP"
        )
    caller.wake_after_commit()
    return not msgspec.json.decode(answer)["duplicate"]


def _request(
    caller: Caller,
    wait: Wait[Any],
    value: Any,
    key: str | None,
    id: UUID | None,
    dedupe_id: str | None,
    missing: Missing,
    actor: str,
    reason: str,
) -> dict[str, Any]:
    owner = wait.owner
    if owner is None or not wait.options.wait or not wait.options.wait.signal:
        raise errors.NotPossible(f"{wait!r} does not wait for a signal; only wait_for(...) does")
    if not isinstance(missing, Missing):
        raise errors.InvalidInput(f"missing={briefly(missing)}: RAISE, IGNORE or KEEP", path="missing")
    if missing is Missing.KEEP and key is None:
        raise errors.InvalidInput("missing=KEEP needs key=: an id says nothing before its saga exists", path="missing")
    settings = caller.settings
    raw = settings.payloads.store(
        value, wait.result_type, limit=settings.max_payload, what=f"{_name(wait)}.send()", of=f"saga {owner.saga_name}"
    )  # fmt: skip
    now = clock.now()
    return {
        **requests.to_find(owner.saga_name, key, id),
        "step": wait.name, "queue": owner.plan.by_name[wait.name].queue, "keep": missing is Missing.KEEP,
        "dedupe_id": None if dedupe_id is None else requests.text(dedupe_id, "dedupe_id", MAX_DEDUPE_ID),
        "payload": {
            "step": wait.name, "value": Raw(raw),
            "actor": requests.optional(actor, "actor", requests.MAX_KEY),
            "reason": requests.optional(reason, "reason", requests.MAX_REASON),
        },
    } | ({} if now is None else {"now": now})  # fmt: skip


def _name(wait: Wait[Any]) -> str:
    return f"{wait.owner.__name__ if wait.owner else '?'}.{wait.name}"
