"""Payloads as JSON that jsonb takes and any receiver can read: what cannot come back as it is, is refused."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from sagas_outbox.errors import InvalidMessage

MOST = 1024 * 1024  # bytes of one payload
MOST_HEADERS = 4096  # bytes
MOST_TEXT = 255  # characters of a destination, a key, a queue
DEEPEST = 100  # levels


def briefly(value: Any) -> str:
    """A value for a message: the beginning of its `repr`, or its type if it has none."""
    try:
        found = repr(value)
    except Exception:  # an int of too many digits, or a class with a faulty __repr__
        found = f"<{type(value).__name__}>"
    return found if len(found) <= 80 else f"{found[:77]}..."


def encode(value: Any, what: str, *, most: int = MOST) -> msgspec.Raw:
    """A value as JSON: dataclasses, msgspec structs and pydantic models as objects, decimals, times and UUIDs as text.

    Args:
        value: it.
        what: what to call it; begins the path of a field in messages.
        most: bytes that it may take.

    Raises:
        InvalidMessage: it has something that JSON or Postgres cannot keep, or is too large.
    """
    try:
        plain = msgspec.to_builtins(value, enc_hook=_model)
        for path, problem in _problems(plain, what, 0):
            raise InvalidMessage(f"{path}: {problem}")
        raw = msgspec.json.encode(plain)
    except (TypeError, ValueError, NotImplementedError, RecursionError, msgspec.MsgspecError) as problem:
        if isinstance(problem, InvalidMessage):
            raise
        raise InvalidMessage(f"{what}: cannot be written as JSON: {problem}") from problem
    if len(raw) > most:
        raise InvalidMessage(
            f"{what}: {len(raw):,} bytes of JSON, {most:,} are allowed; pass a reference to it instead"
        )
    return msgspec.Raw(raw)


def text(value: Any, what: str, most: int = MOST_TEXT) -> str:
    """A short text that Postgres can keep.

    Raises:
        InvalidMessage: it is none.
    """
    if not isinstance(value, str) or not value or len(value) > most:
        raise InvalidMessage(f"{what}={briefly(value)}: a text of 1 to {most} characters")
    plain = str.__str__(value)  # not a subclass, such as a safe string of Django
    for problem in _of_text(plain):
        raise InvalidMessage(f"{what}={briefly(plain)}: {problem}")
    return plain


def _model(value: Any) -> Any:
    """Models by their fields; subclasses of the plain types (a safe string, numpy's float64) as what they are."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    dump: Any = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    raise NotImplementedError(f"objects of type {type(value).__name__} are no JSON")


def _of_text(value: str) -> Iterable[str]:
    if "\x00" in value:
        yield "Postgres keeps no NUL characters"
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        yield "half of a surrogate pair is no text"


def _problems(value: Any, path: str, depth: int) -> Iterable[tuple[str, str]]:
    if depth > DEEPEST:
        yield path, f"nested deeper than {DEEPEST} levels"
    elif isinstance(value, str):
        yield from ((path, problem) for problem in _of_text(value))
    elif isinstance(value, float) and not math.isfinite(value):
        yield path, f"{value} is no number in JSON"
    elif isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                yield path, f"key {briefly(key)}: keys of JSON are text, and would come back as text"
            else:
                yield from _problems(key, f"{path} key {key!r}", depth + 1)
                yield from _problems(each, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _problems(each, f"{path}[{number}]", depth + 1)
