"""`wait_for`, `sleep` and `sleep_until`: steps without a body, at which a saga waits for a signal or a time.

A saga that waits costs one outbox row: no thread, no message, no timer of a process that has to live.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from sagas.context import Missing
from sagas.errors import DefinitionError
from sagas.options import Duration, check_options, check_plain
from sagas.plan import OnTimeout, OnUnknown, WaitPlan
from sagas.step import Step

R = TypeVar("R")
LONGEST = 3650 * 24 * 3600.0  # seconds; ten years
After = Sequence[Step[Any, Any]] | None
Until = Callable[[Any], timedelta | float | datetime]


class Wait(Step[Any, R]):
    """A declared wait. Made by `wait_for`, `sleep` and `sleep_until`."""

    def __init__(
        self, of: Any, plan: WaitPlan, *, timeout: float | None, until: Until | None, after: After = None
    ) -> None:
        super().__init__(_no_body, check_options("wait", external=False, compensate=None, wait=plan, after=after))
        self.of = type(None) if of is None else of  # the type of the signal
        self.wait_timeout = timeout  # seconds; None: without end
        self.until = until  # for a time: says how long, or until when

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        self.label = self.names[0]

    def ends(self, run: Any, now: float) -> float | None:
        """When a wait that begins now is over, in epoch seconds; None: with a signal only.

        Args:
            run: the saga, as bodies see it.
            now: epoch seconds, database clock.

        Raises:
            ValueError: what says when is not usable.
        """
        if self.until is None:
            return None if self.wait_timeout is None else now + self.wait_timeout
        found = self.until(run)
        if isinstance(found, datetime):
            if found.tzinfo is None:
                raise ValueError(f"{self!r}: {found!r} has no time zone; give an aware datetime")
            return found.timestamp()
        return now + _seconds(found, f"{self!r}: slept for")

    def send(
        self,
        value: R,
        *,
        key: str | None = None,
        id: UUID | None = None,
        dedupe_id: str | None = None,
        missing: Missing = Missing.RAISE,
        actor: str = "",
        reason: str = "",
        using: Any = None,
    ) -> bool:
        """Send what this wait waits for, in the caller's own transaction. It may come before the wait is reached.

        Args:
            value: what the step's result will be.
            key: business key of the saga, or
            id: its id.
            dedupe_id: names this signal, for example a webhook's id; sent again it changes nothing.
            missing: what to do when there is no such saga: RAISE, IGNORE, or KEEP it until there is (key= only).
            actor: who sends it; stored in the log.
            reason: why; stored in the log.
            using: as for `Saga.start()`.

        Returns:
            Whether it was taken: False for a duplicate, or when there is no such saga and missing=IGNORE.

        Raises:
            SagaNotFound: there is no such saga and missing=RAISE.
            InvalidInput: the value cannot be stored, or is not of the declared type.
        """
        from sagas import signals

        return signals.send(self, value, key=key, id=id, dedupe_id=dedupe_id, missing=missing, actor=actor,
                            reason=reason, using=using)  # fmt: skip

    async def asend(
        self,
        value: R,
        *,
        key: str | None = None,
        id: UUID | None = None,
        dedupe_id: str | None = None,
        missing: Missing = Missing.RAISE,
        actor: str = "",
        reason: str = "",
        using: Any = None,
    ) -> bool:
        """The asynchronous twin of `send()`."""
        from sagas import signals

        return await signals.asend(self, value, key=key, id=id, dedupe_id=dedupe_id, missing=missing, actor=actor,
                                   reason=reason, using=using)  # fmt: skip

    def start_or_send(
        self, input: Any, value: R, *, key: str, dedupe_id: str | None = None, using: Any = None, **start: Any
    ) -> bool:
        """Start the saga if there is none with this key, and send it the value, in one transaction.

        Args:
            input: of the saga; that of a saga that exists has to be the same.
            value: what this wait waits for.
            key: business key.
            dedupe_id: names this signal; sent again it changes nothing.
            using: as for `Saga.start()`.
            start: further arguments of `Saga.start()`.

        Returns:
            Whether the signal was taken: False for a duplicate.

        Raises:
            KeyConflict: the saga was started with another input.
        """
        from sagas import signals

        signals.check(self, value, key=key, dedupe_id=dedupe_id, using=using)  # before anything is written
        assert self.owner is not None
        self.owner.start(input, key=key, using=using, **start)
        return self.send(value, key=key, dedupe_id=dedupe_id, using=using)


def wait_for(
    of: type[R],
    *,
    timeout: Duration | None = None,
    on_timeout: OnUnknown | OnTimeout = OnTimeout.PARK,
    after: After = None,
) -> Wait[R]:
    """Declare that the saga waits for a signal here.

    Args:
        of: the type of the signal; it is stored like an input, and is the step's result.
        timeout: seconds (or timedelta) to wait at most; None: without end.
        on_timeout: PARK for a person, COMPENSATE to turn back, or SKIP to go on without.
        after: the steps that have to have ended; None: the one declared before it.

    Raises:
        DefinitionError: an argument is not usable.
    """
    if not isinstance(on_timeout, (OnUnknown, OnTimeout)):
        raise DefinitionError(f"wait_for(on_timeout={on_timeout!r}): PARK, COMPENSATE or SKIP")
    seconds = None if timeout is None else _declared(timeout, "wait_for(timeout=...)")
    return Wait(
        of, WaitPlan(signal=True, on_timeout=OnTimeout(on_timeout.value)), timeout=seconds, until=None, after=after
    )


def sleep(duration: Duration | Callable[[Any], Duration], *, after: After = None) -> Wait[None]:
    """Declare that the saga goes on only after some time.

    Args:
        duration: seconds (or timedelta), or a function of the saga that says so (`lambda self: self.input.days`).
        after: as for steps.

    Raises:
        DefinitionError: it is not usable.
    """
    if callable(duration):
        return Wait(None, WaitPlan(signal=False), timeout=None, until=check_plain(duration, "sleep(...)"), after=after)
    seconds = _declared(duration, "sleep(...)")
    return Wait(None, WaitPlan(signal=False), timeout=seconds, until=lambda run: seconds, after=after)


def sleep_until(when: datetime | Callable[[Any], datetime], *, after: After = None) -> Wait[None]:
    """Declare that the saga goes on only from a moment on.

    Args:
        when: an aware datetime, or a function of the saga that says when (`lambda self: self.input.ship_at`).
        after: as for steps.

    Raises:
        DefinitionError: it is not usable.
    """
    if callable(when):
        return Wait(
            None, WaitPlan(signal=False), timeout=None, until=check_plain(when, "sleep_until(...)"), after=after
        )
    if not isinstance(when, datetime) or when.tzinfo is None:
        raise DefinitionError(f"sleep_until({when!r}): an aware datetime, or a function of the saga that returns one")
    return Wait(None, WaitPlan(signal=False), timeout=None, until=lambda run: when, after=after)


def _no_body(self: Any) -> Any:
    raise AssertionError("a wait has no body")


def _declared(value: object, what: str) -> float:
    try:
        return _seconds(value, what)
    except ValueError as problem:
        raise DefinitionError(str(problem)) from None


def _seconds(value: object, what: str) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    odd = isinstance(seconds, float) and not math.isfinite(seconds)
    if odd or isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise ValueError(f"{what} {value!r}: seconds or a timedelta")
    if not 0 <= seconds <= LONGEST:
        raise ValueError(f"{what} {value!r}: from 0 to ten years")
    return float(seconds)
