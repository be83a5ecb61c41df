"""Guarded effects: several side effects in one step, each tried under a key of its own and remembered.

An attempt that comes after a crash finds what earlier attempts got back and does not ask again. The key is
made of saga, step, effect name, direction and generation, so two effects of one step never share one, and
their order in the code does not matter. The same key with another request is an error (Stripe's rule for
idempotency keys). Once the compensation of the step has begun the guard answers "closed" and nothing is tried
any more (dtm's sub-transaction barrier).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from sagas import codec, errors
from sagas.store.rows import Connection
from sagas_outbox.link import Link
from sagas_outbox.queries import query, run

PACKAGE = "sagas.store"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """The guard of one attempt of one step.

    Args:
        link: a connection of its own, in autocommit: what is remembered survives whatever the step does.
        saga_id: the saga.
        token: what the attempt was begun with.
        step_key: the step's own idempotency key.
        limit: bytes that a response may take.
        label: how messages name the attempt.
    """

    link: Link
    saga_id: UUID
    token: int
    step_key: str
    limit: int
    label: str

    def effect(self, name: str, call: Callable[[str], T], *, returns: Any, request: object = None) -> T:
        """Have one side effect, unless an earlier attempt had it. See `Saga.effect`."""
        key = effect_key(self.step_key, name)
        wanted = fingerprint(request)
        with self.link.use() as connection:
            known = self._begin(connection, key, wanted)
        if known is not None:
            found: T = codec.decode(known, returns, what=f"response of effect {name!r}")
            return found
        result = call(key)
        try:
            raw = codec.encode(result, declared=returns, limit=self.limit, what=f"response of effect {name!r}")
        except errors.CodecError as problem:
            raise errors.Unstorable(str(problem), path=problem.path) from problem
        with self.link.use() as connection:
            run(connection, query(PACKAGE, "guard_end"), {"key": key, "response": raw.decode()})
        return result

    def _begin(self, connection: Connection, key: str, wanted: str | None) -> str | None:
        """Remember that the effect is tried; returns the response of an earlier attempt that got one."""
        parameters = {
            "key": key, "step_key": self.step_key, "saga_id": self.saga_id, "token": self.token, "fingerprint": wanted
        }  # fmt: skip
        row = run(connection, query(PACKAGE, "guard_begin"), parameters).fetchone()
        assert row is not None
        closed, _fresh, _state, before, response = row
        if closed:
            raise errors.LeaseLost(
                f"{self.label}: the compensation of this step has begun, so effect {key} may not be tried any more"
            )
        if before is not None and before != wanted:
            raise errors.EffectMismatch(
                f"{self.label}: effect {key} was tried before with another request; give a changed request a new "
                f"effect name, or release the change as a new version of the saga"
            )
        known: str | None = response
        return known


def effect_key(step_key: str, name: str) -> str:
    """The idempotency key of one effect of a step.

    Raises:
        InvalidInput: the name is empty, too long, or has characters other than letters, digits, "_", "-" and ".".
    """
    if not (0 < len(name) <= 64 and all(each.isalnum() or each in "_-." for each in name) and name.isascii()):
        raise errors.InvalidInput(f"effect name {name!r}: 1 to 64 ASCII letters, digits, '_', '-' or '.'", path="name")
    saga_id, step, direction, generation = step_key.rsplit(":", 3)
    return f"{saga_id}:{step}/{name}:{direction}:{generation}"


def fingerprint(request: object) -> str | None:
    """SHA-256 (hex) of what is asked for; None when nothing was given.

    Raises:
        InvalidInput: the request cannot be written as JSON.
    """
    if request is None:
        return None
    try:
        return codec.fingerprint(msgspec.json.encode(request))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as problem:
        raise errors.InvalidInput(f"request: cannot be written as JSON: {problem}", path="request") from problem
