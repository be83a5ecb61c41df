"""`semantic_lock`: a subject that a saga holds from one of its steps to its end.

The countermeasure of that name (Garcia-Molina & Salem, "Sagas", 1987; Richardson, "Microservices Patterns", 2018,
chapter 4): what a saga has changed and may still undo is marked, and other sagas keep off it. It is a row, not a lock
of the database: it is held for days if need be, by no process, and anybody can see who holds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sagas.errors import DefinitionError, InvalidInput
from sagas.uncalled import Uncalled

LONGEST_WAIT: Final = 30 * 24 * 3600.0  # seconds
LONGEST_SUBJECT: Final = 200  # characters
MOST_SUBJECTS: Final = 100  # of one step

Subjects = str | Callable[[Any], str | Iterable[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class SemanticLock:
    """What a step takes before its body begins. Made by `semantic_lock`."""

    given: Subjects
    wait: float  # seconds; 0: not at all

    def subjects(self, saga: Any) -> tuple[str, ...]:
        """The subjects for one saga, in order, each once.

        Args:
            saga: `self` of the step.

        Raises:
            InvalidInput: one is no text, is empty or too long, or there are none, or too many.
        """
        found = self.given if isinstance(self.given, str) else self.given(saga)
        listed = [found] if isinstance(found, str) else list(found)
        for each in listed:
            check_subject(each)
        if not 0 < len(listed) <= MOST_SUBJECTS:
            raise InvalidInput(f"semantic_lock: {len(listed)} subjects; 1 to {MOST_SUBJECTS}", path="lock")
        return tuple(sorted(set(listed)))


def check_subject(subject: object) -> str:
    """A subject as it can be stored.

    Raises:
        InvalidInput: it is no text, or is empty, too long, or not printable.
    """
    if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST_SUBJECT or not subject.isprintable():
        raise InvalidInput(
            f"semantic_lock: subject {subject!r:.{LONGEST_SUBJECT}}: 1 to {LONGEST_SUBJECT} printable characters, "
            f"such as 'account:7'",
            path="lock",
        )
    return subject


def semantic_lock(subject: Subjects, *, wait: float | timedelta | None = None) -> SemanticLock:
    """Say, as `lock=` of a step, what its saga is to hold from this step to its end.

    It is taken before the body begins, all of it or nothing, and given up in the very commit in which the saga ends.
    Retries, other steps and compensations of the same saga, and its child sagas, may use what it holds.

    Args:
        subject: what is held, such as "account:7", or a function of the saga that returns it, or several. It is shown
            to operators and in logs, so keep secrets out of it.
        wait: seconds (or timedelta) to wait at most while another saga holds it, during which nothing is held up and no
            attempt is used; after that, or at once without it, the step is refused (`LockHeld`) and the saga turns
            back. Two sagas that take two subjects in opposite order end by this limit.

    Raises:
        DefinitionError: an argument is not usable.
    """
    if isinstance(subject, str):
        try:
            check_subject(subject)
        except InvalidInput as problem:
            raise DefinitionError(str(problem)) from None
    elif isinstance(subject, Uncalled) or not callable(subject):
        raise DefinitionError(f"semantic_lock({subject!r}): a text such as 'account:7', or a function of the saga")
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else 0.0 if wait is None else wait
    odd = isinstance(seconds, float) and not math.isfinite(seconds)
    if odd or isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise DefinitionError(f"semantic_lock(wait={wait!r}): seconds or a timedelta")
    if not 0 <= seconds <= LONGEST_WAIT:
        raise DefinitionError(f"semantic_lock(wait={wait!r}): from 0 to 30 days")
    return SemanticLock(given=subject, wait=float(seconds))
