"""Guarded effects: several side effects in one step, each tried under a key of its own and remembered.

An attempt that comes after a crash finds what earlier attempts got back and does not ask again. The key is
made of saga, step, effect name, direction and generation, so two effects of one step never share one, and
their order in the code does not matter. The same key with another request is an error (Stripe's rule for
idempotency keys). Once the compensation of the step has begun the guard answers "closed" and nothing is tried
any more (dtm's sub-transaction barrier).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from sagas import codec, errors, guarding
from sagas.guarding import Again, Answer, Closed, Mismatch, Seen, Verdict
from sagas.payloads import PLAIN, Payloads
from sagas.store.rows import Connection
from sagas_outbox import claims
from sagas_outbox.claims import Held
from sagas_outbox.link import Link, Links
from sagas_outbox.queries import query, run

PACKAGE = "sagas.store"
LOOKS = 3  # at a line that another attempt is writing at the same time
T = TypeVar("T")
Apart = Callable[..., Awaitable[Any]]  # calls a function with its arguments where it holds nobody up


class _Known(NamedTuple):
    """What an earlier attempt got back; None has a meaning of its own."""

    value: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """The guard of one attempt of one step.

    Args:
        link: connections of its own, in autocommit: what is remembered survives whatever the step does.
        saga_id: the saga.
        held: outbox row and token that the attempt was begun with.
        holder: the worker that holds it.
        step_key: the step's own idempotency key.
        step: the step.
        queue: where the saga is told of an answer that comes after the compensation of the step has begun.
        limit: bytes that a response may take.
        label: how messages name the attempt.
        payloads: how responses are stored.
    """

    link: Link | Links
    saga_id: UUID
    held: Held  # the outbox row, and the token that the attempt was begun with
    holder: str
    step_key: str
    step: str
    queue: str
    limit: int
    label: str
    payloads: Payloads = PLAIN

    def effect(self, name: str, call: Callable[[str], T], *, returns: Any, request: object = None) -> T:
        """Have one side effect, unless an earlier attempt had it. See `Saga.effect`."""
        key = guarding.effect_key(self.step_key, name)
        found = self._before(name, key, returns, request)
        if found is not None:
            return found.value  # type: ignore[no-any-return]
        result = call(key)
        self._after(name, key, returns, result)
        return result

    async def aeffect(
        self, name: str, call: Callable[[str], Awaitable[T]], *, returns: Any, request: object = None, apart: Apart
    ) -> T:
        """The asynchronous twin of `effect`; speaks with the database through `apart`."""
        key = guarding.effect_key(self.step_key, name)
        found = await apart(self._before, name, key, returns, request)
        if found is not None:
            return found.value  # type: ignore[no-any-return]
        result = await call(key)
        await apart(self._after, name, key, returns, result)
        return result

    def _before(self, name: str, key: str, returns: Any, request: object) -> _Known | None:
        """Remember that the effect is tried; what an earlier attempt got back, if one did."""
        wanted = fingerprint(request)
        with self.link.use() as connection:
            verdict = self._ask(connection, key, wanted)
        if isinstance(verdict, Answer):
            return _Known(self.payloads.read(str(verdict.response), returns, what=f"response of effect {name!r}"))
        self._may_go_on(verdict, key)
        return None

    def _after(self, name: str, key: str, returns: Any, result: object) -> None:
        """Remember what came back."""
        try:
            raw = self.payloads.store(result, returns, limit=self.limit, what=f"response of effect {name!r}")
        except errors.CodecError as problem:
            raise errors.Unstorable(str(problem), path=problem.path) from problem
        with self.link.use() as connection:
            parameters = {
                "key": key, "step_key": self.step_key, "response": raw.decode(), "step": self.step, "queue": self.queue
            }  # fmt: skip
            run(connection, query(PACKAGE, "guard_end"), parameters)

    def keep(self, progress: str) -> bool:
        """Keep how far the attempt has come, as JSON, for the one that takes over from it; False: that one has."""
        with self.link.use() as connection:
            return claims.note_progress(connection, self.held, progress, holder=self.holder)

    def _ask(self, connection: Connection, key: str, wanted: str | None) -> Verdict:
        """Remember that the effect is tried, and see what is known of it."""
        parameters = {
            "key": key, "step_key": self.step_key, "saga_id": self.saga_id, "token": self.held[1], "fingerprint": wanted
        }  # fmt: skip
        verdict: Verdict = Again()
        for _ in range(LOOKS):
            row = run(connection, query(PACKAGE, "guard_begin"), parameters).fetchone()
            assert row is not None
            verdict = guarding.judge(Seen(*row), wanted)
            if not isinstance(verdict, Again):
                break
        return verdict

    def _may_go_on(self, verdict: Verdict, key: str) -> None:
        if isinstance(verdict, Closed):
            raise errors.LeaseLost(
                f"{self.label}: the compensation of this step has begun, so effect {key} may not be tried any more"
            )
        if isinstance(verdict, Mismatch):
            raise errors.EffectMismatch(
                f"{self.label}: effect {key} was tried before with another request; give a changed request a new "
                f"effect name, or release the change as a new version of the saga"
            )


def fingerprint(request: object) -> str | None:
    """SHA-256 (hex) of what is asked for; None when nothing was given.

    Raises:
        InvalidInput: the request cannot be written as JSON.
    """
    if request is None:
        return None
    try:
        # a set has another order in each process
        return codec.fingerprint(msgspec.json.encode(request, order="deterministic"))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as problem:
        raise errors.InvalidInput(f"request: cannot be written as JSON: {problem}", path="request") from problem
