"""What the guard of one effect decides, and under which key: pure, so that the interleaving check runs the same code.

The guard looks twice before an effect: at the line of its step, which is closed once the compensation has begun,
and at the line of the effect itself, which an earlier attempt may have written. `judge` says what follows from that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sagas import errors


class Seen(NamedTuple):
    """What the dedupe table says when an effect is about to be tried; by then `started` is written if nothing was."""

    closed: bool  # the compensation of the step has begun
    fresh: bool  # nothing was known of the effect, and `started` is written now
    known: bool = False  # the line of an earlier attempt was read
    fingerprint: str | None = None  # of what it asked for; None: it did not say
    response: object = None  # what came back; None: no answer is known


class Proceed(NamedTuple):
    """Have the effect."""


class Answer(NamedTuple):
    """An earlier attempt had it; this came back."""

    response: object


class Closed(NamedTuple):
    """The compensation of the step has begun: it may not be tried any more."""


class Mismatch(NamedTuple):
    """It was tried with another request under this key."""


class Again(NamedTuple):
    """Another attempt wrote its line this very moment, and it could not be read yet: look again."""


Verdict = Proceed | Answer | Closed | Mismatch | Again
PROCEED: Final = Proceed()


def judge(seen: Seen, wanted: str | None) -> Verdict:
    """Whether an effect may be tried.

    Args:
        seen: what the dedupe table says.
        wanted: the fingerprint of what is asked for now; None: not given, and nothing is compared.
    """
    if seen.closed:
        return Closed()
    if seen.fresh:
        return PROCEED
    if not seen.known:
        return Again()
    if seen.fingerprint is not None and seen.fingerprint != wanted:
        return Mismatch()
    return PROCEED if seen.response is None else Answer(seen.response)


def effect_key(step_key: str, name: str) -> str:
    """The idempotency key of one effect of a step.

    Raises:
        InvalidInput: the name is empty, too long, or has characters other than letters, digits, "_", "-" and ".".
    """
    if not (0 < len(name) <= 64 and all(each.isalnum() or each in "_-." for each in name) and name.isascii()):
        raise errors.InvalidInput(f"effect name {name!r}: 1 to 64 ASCII letters, digits, '_', '-' or '.'", path="name")
    saga_id, step, direction, generation = step_key.rsplit(":", 3)
    return f"{saga_id}:{step}/{name}:{direction}:{generation}"
