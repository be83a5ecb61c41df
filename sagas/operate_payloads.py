"""Payloads of one saga on the command line, for whoever asks for them: masked and unopened, as in the admin."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from sagas.desk import Desk
from sagas.events import Kind
from sagas.operate import one_line

LAST: Final = 2**31 - 1
MOST_TEXT: Final = 4_000  # characters of one for people
MOST_DATA: Final = 1_000_000  # and for programs
RESULT: Final = "result"
LABELS: Final[Mapping[str, str]] = {  # what entries of other kinds hold
    Kind.STARTED: "input", Kind.SIGNALLED: "signal", Kind.CHILDREN_STARTED: "given to children",
}  # fmt: skip


def by_entry(desk: Desk, saga: UUID) -> dict[int, list[str]]:
    """The payloads of a log as lines, by the number of the entry that holds each."""
    return {row.seq: list(_lines(row)) for row in _rows(desk, saga, MOST_TEXT)}


def data(desk: Desk, saga: UUID) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {"seq": row.seq, "step": row.step, "what": LABELS.get(row.kind, RESULT), "cut": len(row.payload) > MOST_DATA,
         "value": _value(row.payload)}
        for row in _rows(desk, saga, MOST_DATA)
    ]  # fmt: skip


def _rows(desk: Desk, saga: UUID, most: int) -> Iterator[Any]:
    rows = desk.rows("timeline", {"saga": saga, "before": LAST, "limit": LAST, "payload": most + 1})
    return (row for row in reversed(rows) if row.payload not in (None, "null"))


def _value(text: str) -> Any:
    return text[:MOST_DATA] if len(text) > MOST_DATA else json.loads(text)


def _lines(row: Any) -> Iterator[str]:
    """One payload. A line break in a value is not one in JSON, so that none can forge a line."""
    first, *rest = map(one_line, row.payload[:MOST_TEXT].split("\n"))
    yield f"{LABELS.get(row.kind, RESULT)}: {first}"
    yield from rest
    if len(row.payload) > MOST_TEXT:
        yield f"… ({row.size:,} characters in all; --json gives {MOST_DATA:,})"
