"""Errors as text: cleaned, bounded, and never a reason for a second error."""

from __future__ import annotations

import traceback
from collections.abc import Collection

from sagas.events import ErrorText
from sagas.sensitive import scrub

MAX_MESSAGE = 2_000  # characters
MAX_TRACEBACK = 8_000
MAX_TYPE = 200


def error_text(error: BaseException, *, hide: Collection[str] = ()) -> ErrorText:
    """What is kept of an exception. Works for any: one whose text holds NUL bytes or lone surrogates, is
    megabytes long, or cannot be had at all.

    Args:
        error: the exception.
        hide: texts to mask in it.
    """
    try:
        message = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # it may even ask for the end of the process
        message = f"(its text cannot be had: {type(problem).__name__})"
    try:
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-20))
    except KeyboardInterrupt:
        raise
    except BaseException:
        trace = ""
    if hide:
        message, trace = scrub(message, hide), scrub(trace, hide)
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    return ErrorText(clean(kind, MAX_TYPE), clean(message, MAX_MESSAGE), clean(trace, MAX_TRACEBACK, keep_end=True))


def clean(text: str, limit: int, *, keep_end: bool = False) -> str:
    """Text that jsonb and text columns accept, at most `limit` characters long."""
    if len(text) > limit:
        text = "…" + text[1 - limit :] if keep_end else text[: limit - 1] + "…"
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\\0")
