"""What became of a saga, in words: read from its log, for messages of tests that fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from sagas import clock, machine
from sagas.errors import UnknownSaga
from sagas.events import Direction, Entry, ErrorText
from sagas.fold import fold
from sagas.head import read_head
from sagas.payloads import shown
from sagas.ports import Connection
from sagas.registry import registry
from sagas.states import State
from sagas.store.rows import entry_of
from sagas_outbox.queries import query

PACKAGE = "sagas.testing"
LONGEST_INPUT = 300  # characters of it in a story
MOST_ERRORS = 3  # tracebacks in a story
INDENT = "    "


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One saga as it stands, with its log and the work that it has left."""

    id: UUID
    name: str
    version: int
    key: str
    state: State
    entries: tuple[Entry, ...]
    work: tuple[dict[str, Any], ...]

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"saga {self.name} {self.id} (key {self.key!r})"

    @property
    def unfinished(self) -> bool:
        """Whether it is parked, or has work left that is not a wait for a signal."""
        return machine.parked(self.state) or any(
            not waits_for_signal(self.name, self.version, row) for row in self.work
        )  # fmt: skip


def look(connection: Connection, ids: Sequence[UUID]) -> list[Seen]:
    """Some sagas as this connection sees them, in the order in which they were started."""
    wanted = list(ids)
    work: dict[UUID, list[dict[str, Any]]] = {}
    for row in fetch(connection, "work", {"only": wanted, "now": clock.now()}):
        work.setdefault(row["saga_id"], []).append(row)
    found = []
    for row in fetch(connection, "sagas", {"ids": wanted}):
        entries = tuple(
            entry_of(line["seq"], line["kind"], line["step"], line["attempt"], line["data"])
            for line in fetch(connection, "log", {"id": row["id"]})
        )
        found.append(Seen(**row, state=fold(entries), entries=entries, work=tuple(work.get(row["id"], ()))))
    return found


def waits_for_signal(name: str | None, version: int, row: dict[str, Any]) -> bool:
    """Whether an outbox row stands for a wait whose signal has not come and whose time is not over, or for a step whose
    children have not ended.

    Args:
        name: of the saga.
        version: of the saga.
        row: with `step`, `direction` and `due_in`.
    """
    if name is None or row["due_in"] <= 0 or row["direction"] != Direction.DO or version not in registry.versions(name):
        return False
    planned = registry.get(name, version).plan.by_name.get(row["step"])
    if planned is None:
        return False
    return planned.children is not None or (planned.wait is not None and planned.wait.signal)


def fetch(connection: Connection, name: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of one of this package's queries."""
    with psycopg.Cursor(connection, row_factory=dict_row) as cursor:
        return cursor.execute(query(PACKAGE, name), parameters).fetchall()


def story(seen: Seen) -> str:
    """Its log line by line, the work that is left, and the tracebacks of what was raised last."""
    lines = [f"{seen.label} is {seen.state.status.value}" + (f": {seen.state.error}" if seen.state.error else "")]
    lines += [f"{INDENT}{line}" for entry in seen.entries for line in _entry(entry)]
    lines += [f"{INDENT}{line}" for line in _work(seen)]
    for entry, error in last_errors(seen.entries):
        kind = entry.kind.value.replace("_", " ")
        lines.append(f"{INDENT}the last error of {kind!r} of step {entry.step}, in attempt {entry.attempt}:")
        lines += [f"{INDENT * 2}{line}" for line in (error.traceback or error.message).rstrip().splitlines()]
    return "\n".join(lines)


def last_errors(entries: Sequence[Entry]) -> list[tuple[Entry, ErrorText]]:
    """What was raised last by each body that raised: a step, its compensation, what resolves it."""
    last = {(each.step, each.kind): (each, each.data.error) for each in entries if each.data.error is not None}
    return sorted(last.values(), key=lambda found: found[0].seq)[-MOST_ERRORS:]


def _entry(entry: Entry) -> Iterator[str]:
    data = entry.data
    text = f"{entry.seq:>3}  {entry.kind.value.replace('_', ' ')}"
    if entry.step:
        text += f": {entry.step}" + (f", attempt {entry.attempt}" if entry.attempt else "")
    if data.source and data.source.value != "body":
        text += f", found out by {data.source.value}"
    if data.error is not None:
        text += f": {data.error.type}: {_first_line(data.error.message)}"
    if data.reason:
        text += f": {data.reason}"
    if data.unknown:
        text += " (whether it happened is unknown)"
    if data.retry_in is not None:
        text += f", again in {span(data.retry_in)}"
    yield text
    if entry.seq == 0:
        given = shown(bytes(read_head(data.saga).input))  # type: ignore[arg-type]
        yield f"{INDENT} with {given if len(given) <= LONGEST_INPUT else given[:LONGEST_INPUT] + '…'}"


def _work(seen: Seen) -> Iterator[str]:
    try:
        registry.get(seen.name, seen.version)
    except UnknownSaga as problem:
        yield f"nobody can run it: {problem}"
    for row in seen.work:
        what = f"{row['step']}:{row['direction']}" if row["step"] else f"a request, {row['kind']}"
        held = ", held by a worker that brought no answer" if row["holder"] else ""
        yield f"  left: {what}, {_when(row['due_in'])}{held}"


def _when(due_in: float) -> str:
    return "due now" if due_in <= 0 else f"due in {span(due_in)}"


def span(seconds: float) -> str:
    """A length of time that one takes in at a glance."""
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole % 86400 // 3600, whole % 3600 // 60
    if whole < 60:
        return f"{seconds:.3g} s"
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (whole % 60, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]
