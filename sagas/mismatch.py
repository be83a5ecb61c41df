"""Why a value cannot be stored: the slow search, run only when the fast checks of the codec objected."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sagas.pydantic_models import is_model
from sagas.sensitive import MASK

MAX_DEPTH = 100  # levels of nesting; Postgres, msgspec and readers of the log all give up somewhere above
MAX_BITS = 13_000  # of an int; CPython refuses to read or write decimal numbers of more than 4,300 digits

Problem = tuple[str, str]  # path, reason

_hidden: ContextVar[bool] = ContextVar("hidden", default=False)


@contextmanager
def hidden(sensitive: bool) -> Iterator[None]:
    """In this block values are masked where a message would show them, if the type has something sensitive."""
    before = _hidden.set(sensitive)
    try:
        yield
    finally:
        _hidden.reset(before)


def find_problem(value: object, path: str, depth: int = 0) -> Problem | None:
    """The first thing in a value that no store could give back.

    Args:
        value: what is to be stored.
        path: what to call it.
        depth: levels above it.
    """
    if depth > MAX_DEPTH:
        return f"{path[:60]}...", f"nested deeper than {MAX_DEPTH} levels (or a cycle); store a flat form"
    reason = _own_problem(value)
    if reason is not None:
        return path, reason
    if isinstance(value, dict):
        for key in value:
            if (reason := _own_problem(key)) is not None:
                return path, f"key {_short(key)}: {reason}"
    for suffix, child in _children(value):
        if (found := find_problem(child, path + suffix, depth + 1)) is not None:
            return found
    return None


def find_difference(given: Any, back: Any, path: str) -> Problem | None:
    """The first place where a value and what would be read back differ in type or content.

    `int` where `float` is declared counts as the same when it is equal (as for type checkers),
    and so do subclasses of the plain types. Datetimes count as instants.
    """
    if not _same_kind(given, back):
        return path, f"is {type(given).__name__}, would come back as {type(back).__name__}; pass what is declared"
    if isinstance(back, dict) and given.keys() != back.keys():
        return path, f"keys {_few(given.keys() ^ back.keys())} would not come back as they are"
    if isinstance(back, (list, tuple)) and len(given) != len(back):
        return _lost(given, back, path)
    if not _compared_by_part(back):
        return None if _equal(given, back) else _lost(given, back, path)
    for suffix, child, other in _pairs(given, back):
        if (found := find_difference(child, other, path + suffix)) is not None:
            return found
    return None


def find_refused(value: object, path: str, write: Callable[[object], object], depth: int = 0) -> str:
    """Where the innermost part is that cannot be written: the path of `value` itself if all its parts can."""
    for suffix, child in _children(value) if depth < MAX_DEPTH else ():
        try:
            write(child)
        except Exception:
            return find_refused(child, path + suffix, write, depth + 1)
    return path


def _same_kind(given: object, back: object) -> bool:
    if _field_names(back) is not None:
        return type(given) is type(back)
    if isinstance(back, float) and isinstance(given, int):
        return not isinstance(given, bool)
    return isinstance(given, type(back))


def _compared_by_part(value: object) -> bool:
    return isinstance(value, (dict, list, tuple)) or _field_names(value) is not None


def _equal(given: object, back: object) -> bool:
    if isinstance(given, datetime) and isinstance(back, datetime):
        # not by ==: that is false between two zones in an hour that the clocks repeat
        return given.astimezone(UTC) == back.astimezone(UTC)
    return given == back


def _own_problem(value: object) -> str | None:
    match value:
        case str():
            if "\x00" in value:
                return "has a NUL character (\\x00), which Postgres cannot store; remove it"
            if any("\ud800" <= char <= "\udfff" for char in value):
                return "has a lone surrogate, which is no valid text; decode the original bytes properly"
        case int():
            if value.bit_length() > MAX_BITS:
                return "is an int of more than 4,000 digits; store it as text"
        case float():
            if not math.isfinite(value):
                return f"is {value!r}, which JSON cannot say; use None or a finite number"
        case Decimal():
            if not value.is_finite():
                return f"is {value}, which is no amount; use None or a finite number"
        case datetime():
            if value.utcoffset() is None:
                return "is a datetime without a time zone; make it aware, for example datetime.now(UTC)"
    return None


def _pairs(given: Any, back: Any) -> Iterator[tuple[str, object, object]]:
    """Parts that belong together. Those of a dict do by their keys: how keys are shown, shortened or hidden, may be the
    same for several."""
    if isinstance(back, dict):
        yield from ((f"[{_short(key)}]", child, back[key]) for key, child in given.items())
        return
    parts = dict(_children(back))
    yield from ((suffix, child, parts[suffix]) for suffix, child in _children(given) if suffix in parts)


def _children(value: Any) -> Iterator[tuple[str, object]]:
    names = _field_names(value)
    if names is not None:
        yield from ((f".{name}", getattr(value, name, None)) for name in names)
    elif isinstance(value, dict):
        yield from ((f"[{_short(key)}]", child) for key, child in value.items())
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from ((f".{name}", child) for name, child in zip(value._fields, value, strict=True))
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{position}]", child) for position, child in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield from (("{...}", child) for child in value)


def _field_names(value: Any) -> list[str] | None:
    """Names of the stored attributes; None for what is no object with fields."""
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return [part.name for part in dataclasses.fields(value)]
    if hasattr(value, "__struct_fields__"):
        return list(value.__struct_fields__)
    if is_model(type(value)):
        return list(type(value).model_fields)
    if hasattr(value, "__attrs_attrs__"):
        return [part.name for part in value.__attrs_attrs__]
    return None


def _lost(given: object, back: object, path: str) -> Problem:
    return path, f"{_short(given)} would come back as {_short(back)}"


def _few(keys: Any) -> str:
    return ", ".join(sorted(_short(key) for key in keys)[:5])


def _short(value: object) -> str:
    if _hidden.get():
        return MASK
    try:
        text = repr(value)
    except Exception:  # an int of too many digits, or a class with a faulty __repr__
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else f"{text[:77]}..."
