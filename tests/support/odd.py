"""Values that nobody means to give, and a picture of all tables, to see that nothing was written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connections

TABLES = (
    "sagas_saga", "sagas_log", "sagas_outbox", "sagas_dedupe", "sagas_signal", "sagas_message", "sagas_lock",
    "sagas_pause", "sagas_queue", "sagas_schedule", "sagas_tombstone", "sagas_archive", "sagas_inbox",
)  # fmt: skip


class Mute:
    """An object that cannot say what it is."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


class Liar(str):
    """A text that is another one when asked."""

    def __str__(self) -> str:
        return "another\x00"


def odd_values() -> list[Any]:
    """One of each kind, new ones each time."""
    cycle: list[Any] = []
    cycle.append(cycle)
    return [
        None, True, False, 0, -1, 7, 10**400, 2**63, -(2**63), 0.5, float("nan"), float("inf"), -0.0, 1e308,
        "", " ", "a\x00b", "\ud800", "x" * 300, "x" * 70_000, "1e400", "'; drop table sagas_saga; --", "é", "e\u0301",
        "\u202e", "{}", b"bytes", bytearray(b"x"), Decimal("NaN"), Decimal("1e400"), Decimal("sNaN"),
        datetime(2026, 1, 1), datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC), date(2026, 1, 1),
        timedelta(0), timedelta.max, timedelta(seconds=-1), UUID(int=0), [], [1], {}, {"a": 1}, {1: 2}, {"a\x00": "b"},
        {"a": object()}, set(), (1, 2), cycle, object(), object, Mute(), Liar("x"), lambda: None, Exception("x"),
        {"a": "x" * 5000}, {"a": Mute()}, [Mute()], range(3), 1j, Ellipsis,
    ]  # fmt: skip


def shown(value: Any) -> str:
    """How a value is called in the names of tests and in messages."""
    try:
        return f"{type(value).__name__} {value!r}"[:60]
    except Exception:
        return type(value).__name__


def everything(using: str = "default") -> dict[str, list[Any]]:
    """All rows of all tables."""
    found: dict[str, list[Any]] = {}
    with connections[using].cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"select to_json(t)::text from {table} t order by 1")
            found[table] = cursor.fetchall()
    return found


def told(call: Callable[[], object], clear: tuple[type[BaseException], ...]) -> str:
    """What a call made of odd values: "" where it took them, or the text of its error.

    Raises:
        AssertionError: the error is none of `clear`, or says nothing.
    """
    try:
        call()
    except clear as problem:
        said = str(problem)
    except BaseException as problem:
        raise AssertionError(
            f"not an error of ours: {type(problem).__module__}.{type(problem).__name__}: {problem}"
        ) from problem
    else:
        return ""
    assert len(said) > 10, f"says nothing: {said!r}"
    return said
