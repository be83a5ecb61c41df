"""What can be said of a step in its decorator, checked at once.

Each check returns the value in the form the plan keeps (seconds as float) or raises
`DefinitionError` with the step's name and the value to change.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final

from sagas.errors import DefinitionError
from sagas.locks import SemanticLock
from sagas.plan import ChildrenPlan, OnUnknown, WaitPlan
from sagas.retry import Retry
from sagas_outbox.encoding import briefly

LONGEST = 30 * 24 * 3600.0  # seconds; longer waits are waits of the saga, not of one step
MOST_DELIVERIES = 1000
MOST_PRIORITY = 100
QUEUE_NAME = re.compile(r"[\x21-\x7e]{1,100}")

Duration = float | timedelta


class Unsaid(Enum):
    """The type of `UNSAID`: the argument was not given (None has a meaning of its own)."""

    UNSAID = "unsaid"

    def __repr__(self) -> str:
        return "..."


UNSAID = Unsaid.UNSAID


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOptions:
    """The arguments of `@step` and `@external_step`, checked."""

    external: bool
    retry: Retry
    timeout: float | None
    queue: str
    key_ttl: float | None
    pivot: bool
    nothing_to_undo: bool  # compensate=None was said
    on_unknown: OnUnknown
    settle_after: float
    max_deliveries: int
    retry_said: bool = True  # False: it is the default one
    when: Callable[[Any], Any] | None = None
    wait: WaitPlan | None = None
    after: tuple[Any, ...] | None = None  # declared steps; None: the one declared before
    priority: int = 0
    lock: SemanticLock | None = None
    children: ChildrenPlan | None = None


def check_options(
    name: str,
    *,
    external: bool,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    queue: str = "default",
    pivot: bool = False,
    compensate: Unsaid | None = UNSAID,
    max_deliveries: int = 5,
    key_ttl: Duration | None = None,
    on_unknown: OnUnknown = OnUnknown.PARK,
    settle_after: Duration = 60.0,
    when: Callable[[Any], Any] | None = None,
    wait: WaitPlan | None = None,
    after: Sequence[Any] | None = None,
    lock: SemanticLock | None = None,
    children: ChildrenPlan | None = None,
    priority: int = 0,
) -> StepOptions:
    """Options of a step from the arguments of its decorator.

    Raises:
        DefinitionError: an argument is not usable.
    """
    if compensate is not UNSAID and compensate is not None:
        raise DefinitionError(
            f"step {name!r}: compensate={briefly(compensate)}: only None is possible here (nothing to undo); "
            f"write the compensation below the step under @{name}.compensate"
        )
    if not isinstance(pivot, bool):
        raise DefinitionError(f"step {name!r}: pivot={briefly(pivot)} must be True or False")
    if not isinstance(on_unknown, OnUnknown):
        raise DefinitionError(f"step {name!r}: on_unknown={briefly(on_unknown)} must be PARK or COMPENSATE")
    if isinstance(max_deliveries, bool) or not isinstance(max_deliveries, int):
        raise DefinitionError(f"step {name!r}: max_deliveries={briefly(max_deliveries)} must be a whole number")
    if not 1 <= max_deliveries <= MOST_DELIVERIES:
        raise DefinitionError(
            f"step {name!r}: max_deliveries={briefly(max_deliveries)} must be from 1 to {MOST_DELIVERIES}"
        )
    if lock is not None and not isinstance(lock, SemanticLock):
        raise DefinitionError(
            f"step {name!r}: lock={briefly(lock)}: write lock=semantic_lock('account:7'), or with a function"
        )
    return StepOptions(
        external=external,
        retry=check_retry(name, retry),
        timeout=check_seconds(name, "timeout", timeout),
        queue=check_queue(name, queue),
        key_ttl=check_seconds(name, "key_ttl", key_ttl),
        pivot=pivot,
        nothing_to_undo=compensate is None,
        on_unknown=on_unknown,
        settle_after=check_seconds(name, "settle_after", settle_after) or 60.0,
        max_deliveries=max_deliveries,
        retry_said=retry is not None,
        when=None if when is None else check_plain(when, f"step {name!r}: when="),
        wait=wait,
        after=_check_after(name, after),
        lock=lock,
        children=children,
        priority=check_priority(name, priority),
    )


def options_of(function: Callable[..., Any]) -> frozenset[str]:
    """The names of its keyword arguments."""
    parameters = inspect.signature(function).parameters.values()
    return frozenset(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)


ELSEWHERE: Final = {  # what others call it -> our option, and how it is written
    "max_retries": ("retry", "attempts are counted: retry=Retry(max_attempts=...)"),
    "max_attempts": ("retry", "write retry=Retry(max_attempts=...)"),
    "attempts": ("retry", "write retry=Retry(max_attempts=...)"),
    "retries": ("retry", "attempts are counted: retry=Retry(max_attempts=...)"),
    "tolerate": ("on_failure", "write on_failure=tolerate(...)"),
}


def check_known(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """Options that there are.

    Args:
        what: whose they are, for example "step()".
        given: their names.
        known: those that there are.

    Raises:
        DefinitionError: one of them is none; the message says which was probably meant.
    """
    for name in given:
        if name not in known:
            close = get_close_matches(name[:100], known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(known))}"
            belongs, said = ELSEWHERE.get(name, ("", ""))
            hint = said if belongs in known else hint
            raise DefinitionError(f"{what} has no option {briefly(name)}; {hint}")


def check_seconds(name: str, option: str, value: object) -> float | None:
    """A duration in seconds: above 0, at most 30 days. None stays None (the store's default)."""
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise DefinitionError(f"step {name!r}: {option}={briefly(value)} must be seconds or a timedelta")
    if not 0 < seconds <= LONGEST:  # which no NaN is
        raise DefinitionError(
            f"step {name!r}: {option}={briefly(value)} must be above 0 and at most 30 days; "
            f"leave it out for the default"
        )
    return float(seconds)


def check_retry(name: str, value: Retry | None) -> Retry:
    """A `Retry`; None means the default one."""
    if value is None:
        return Retry()
    if not isinstance(value, Retry):
        raise DefinitionError(f"step {name!r}: retry={briefly(value)} must be a Retry(...)")
    return value


def check_queue(name: str, value: object) -> str:
    """A queue name: 1 to 100 visible ASCII characters."""
    if not isinstance(value, str) or not QUEUE_NAME.fullmatch(value):
        raise DefinitionError(
            f"step {name!r}: queue={briefly(value)} must be 1 to 100 visible ASCII characters, no spaces"
        )
    return value


def check_priority(name: str, value: object) -> int:
    """A priority: a whole number from -100 to 100."""
    if isinstance(value, bool) or not isinstance(value, int) or not -MOST_PRIORITY <= value <= MOST_PRIORITY:
        raise DefinitionError(
            f"step {name!r}: priority={briefly(value)} must be a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}"
        )
    return value


def _check_after(name: str, after: object) -> tuple[Any, ...] | None:
    if after is None:
        return None
    if not isinstance(after, (list, tuple)) or any(not hasattr(each, "label") for each in after):
        raise DefinitionError(
            f"step {name!r}: after={briefly(after)} must be a list of steps declared above it, such as after=[charge], "
            f"or [] if it needs none"
        )
    return tuple(after)


def check_plain(function: Any, what: str) -> Callable[[Any], Any]:
    """A plain function of one argument, the saga.

    Args:
        function: what was given.
        what: how to call it, for example "sleep(...)".

    Raises:
        DefinitionError: it is something else.
    """
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        raise DefinitionError(
            f"{what}: {briefly(function)} must be a plain function of the saga, such as lambda self: ..."
        )
    if len(inspect.signature(function).parameters) != 1:
        raise DefinitionError(f"{what}: must take one argument, the saga, but takes {inspect.signature(function)}")
    return function


def check_body(body: Any, what: str, *parameters: str, external: bool) -> Callable[..., Any]:
    """A method that takes exactly these positional parameters.

    Args:
        body: what was decorated.
        what: how to call it, for example "step 'charge'".
        parameters: names for the message, "self" first.
        external: whether it touches another system; then it may be `async def`.

    Raises:
        DefinitionError: it is something else, or takes something else.
    """
    if not inspect.isfunction(body):
        raise DefinitionError(f"{what}: {body!r} is not a function; decorate a plain method (def ...)")
    if inspect.iscoroutinefunction(body) and not external:
        raise DefinitionError(
            f"{what}: a local step cannot be async def: it runs in one transaction together with its log entry; write "
            f"def (self.session is a SQLAlchemy Session, also where the application uses AsyncSession), and move what "
            f"has to be awaited into an @external_step"
        )
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise DefinitionError(f"{what}: it contains yield, so calling it would do nothing; return the result instead")
    taken = inspect.signature(body).parameters.values()
    positional = [each for each in taken if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if len(taken) != len(positional) or len(positional) != len(parameters):
        raise DefinitionError(
            f"{what}: must take exactly ({', '.join(parameters)}), but takes {inspect.signature(body)}; "
            f"everything else comes from self (self.input, self.<step>.result)"
        )
    return body
