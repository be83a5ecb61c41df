"""What a function returned that was to do something, and has not done it: nobody ran it, or it is an error.

A refund that nobody awaited was never asked for, and must not count as made. What a compensation returns is of no use
to anybody otherwise, so most of it is let pass: the bank's answer, for example.
"""

from __future__ import annotations

import inspect
from typing import Any, Final, Protocol

from msgspec import Raw

from sagas.errors import Unstorable
from sagas.events import Attempt, ErrorText, Failed, Source, Succeeded, Undecided
from sagas.outcome import NOT_DONE

NULL: Final = Raw(b"null")
NEVER_RAN: Final = (inspect.isawaitable, inspect.isgenerator, inspect.isasyncgen)


class Tells(Protocol):
    """Knows what of an error may be kept."""

    def error_text(self, problem: BaseException, /) -> ErrorText: ...


def unrun(found: Any) -> str | None:
    """What was returned, in words, if whoever returned it did nothing but make it. It is not run later either."""
    if not any(look(found) for look in NEVER_RAN):
        return None
    if inspect.iscoroutine(found):
        found.close()  # or Python warns about it long after, in some other place
    return f"a {type(found).__name__} that nobody ran"


def undone(event: Attempt, found: Any, told_by: Tells) -> Succeeded | Failed:
    """What came of a compensation that returned this."""
    if said := _undid_nothing(found):
        return Failed(event, told_by.error_text(_problem(event, "compensation", said)), give_up=True)
    return Succeeded(event, NULL)


def found_undone(event: Attempt, found: Any, told_by: Tells) -> Succeeded | Undecided:
    """What came of a `resolve` of a compensation that returned this, which was not NOT_DONE."""
    if said := _undid_nothing(found):
        return Undecided(event, told_by.error_text(_problem(event, "resolve of the compensation", said)))
    return Succeeded(event, NULL, Source.RESOLVE)


def _undid_nothing(found: Any) -> str | None:
    if said := unrun(found):
        return f"{said} (an `await` that was forgotten, or a `yield`)"
    if isinstance(found, BaseException):
        return f"a {type(found).__name__} and did not raise it"
    return repr(found) if found is NOT_DONE else None


def _problem(event: Attempt, what: str, said: str) -> Unstorable:
    return Unstorable(f"{what} of step {event.step!r} returned {said}: it does not count as done")
