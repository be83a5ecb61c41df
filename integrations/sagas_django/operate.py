"""What operators ask for on the command line, as text lines."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any
from uuid import UUID

from django.db import connections

from sagas import engine, machine
from sagas.engine import SagaRun
from sagas.errors import InvalidInput, NotPossible, StoreNotReady
from sagas.events import OPERATIONS
from sagas.rebuild import rebuild
from sagas.states import State, Status
from sagas.verify import Finding, verify
from sagas_django.checks import POSTGRES, check_postgres
from sagas_django.models import LogEntry, OutboxRow, SagaRow
from sagas_django.progress import StepLine, plan_of, state_of, step_lines, work
from sagas_django.store import DjangoStore
from sagas_django.wording import DIRECTION, KIND, REQUEST, SOURCE, STATUS, STEP_STATUS, age, clock, from_now, word, zone

WIDEST = 60  # characters of a reason in a listing


def check_ready(database: str) -> None:
    """Refuse to start on a database that lacks our tables.

    Raises:
        StoreNotReady: it cannot be reached, is no Postgres, or is not migrated.
    """
    _check_alias(database)
    for problem in check_postgres(database):
        raise StoreNotReady(f"{problem.msg}. {problem.hint or ''}".strip())


def _check_alias(database: str) -> None:
    if database not in connections:
        raise StoreNotReady(f"--database {database!r}: no such alias in DATABASES; known: {', '.join(connections)}")
    if (vendor := connections[database].vendor) != POSTGRES:
        raise StoreNotReady(
            f"--database {database!r} is {vendor}, sagas live in Postgres; pass --database the alias of one"
        )


def find(database: str, wanted: str) -> SagaRun:
    """A saga by its id or by `name:key`.

    Raises:
        SagaNotFound: there is none.
        InvalidInput: it is neither.
        StoreNotReady: there is no such database, or it lacks our tables.
    """
    _check_alias(database)
    name, colon, key = wanted.partition(":")
    if colon:
        return engine.find(name, key=key, using=database)
    try:
        id = UUID(wanted)
    except ValueError:
        raise InvalidInput(
            f"{wanted!r} is neither a saga's id nor name:key; `manage.py sagas list` shows both", path="saga"
        ) from None
    return engine.find(None, id=id, using=database)


def listing(database: str, *, statuses: list[str], name: str | None, limit: int) -> Iterator[str]:
    """Sagas, newest first.

    Raises:
        InvalidInput: a status that does not exist, or a limit below 1.
        StoreNotReady: there is no such database, or it lacks our tables.
    """
    check_ready(database)
    for status in statuses:
        _check_status(status)
    if limit < 1:
        raise InvalidInput(f"--limit {limit}: at least 1", path="limit")
    sagas = SagaRow.objects.using(database).defer("headers").order_by("-id")
    if statuses:
        sagas = sagas.filter(status__in=statuses)
    if name:
        sagas = sagas.filter(name=name)
    lines = [_cells(saga) for saga in sagas[:limit]]
    if not lines:
        yield f"no saga in {database!r}" + (" fits" if statuses or name else "")
        return
    head = ("status", "id", "age", "step", "name", "key")
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    for line in (head, *lines):
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _check_status(status: str) -> None:
    known = [each.value for each in Status]
    if status not in known:
        close = get_close_matches(status, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"
        raise InvalidInput(f"--status {status!r}: no such status{hint}", path="status")


def _cells(saga: SagaRow) -> tuple[str, ...]:
    key = saga.key if len(saga.error) == 0 else f"{saga.key}  ({_shortened(saga.error)})"
    return word(STATUS, saga.status), str(saga.id), age(saga.created_at), current_step(saga), saga.name, key


def _shortened(text: str) -> str:
    line = " ".join(one_line(text).split())
    return line if len(line) <= WIDEST else line[: WIDEST - 1] + "…"


def current_step(saga: SagaRow) -> str:
    """What a saga is about to do, or parked over; nothing when it has ended or this process lacks its definition."""
    plan, state = plan_of(saga.name, saga.version), state_of(saga)
    if plan is None or state is None:
        return ""
    return ", ".join(
        each.step if each.direction.value == "do" else f"{each.step} ({word(DIRECTION, each.direction)})"
        for each in work(plan, state)
    )


def description(database: str, wanted: str) -> Iterator[str]:
    """One saga: where it stands, its steps in declared order, its work in the outbox and its log."""
    saga = find(database, wanted)
    yield from _head(saga)
    yield from _steps(saga)
    for row in OutboxRow.objects.using(database).filter(saga_id=saga.id).order_by("id"):
        yield outbox_text(row)
    previous = None
    for entry in LogEntry.objects.using(database).filter(saga_id=saga.id).order_by("seq"):
        since = "" if previous is None else f"+{(entry.at - previous).total_seconds():.3f} s"
        yield f"{entry.seq:>5}  {clock(entry.at)}  {since:>12}  {entry_text(entry)}"
        previous = entry.at


def _head(saga: SagaRun) -> Iterator[str]:
    yield f"saga      {saga.name} version {saga.version}, key {saga.key!r}, run {saga.run}"
    yield f"id        {saga.id}"
    parked_from = f" (from {word(STATUS, saga.parked_from)})" if saga.parked_from else ""
    cancel = ", cancel requested" if saga.cancel_requested else ""
    yield f"status    {word(STATUS, saga.status)}{parked_from}{cancel}"
    if saga.error:
        yield f"reason    {one_line(saga.error)}"
    if saga.created_at and saga.updated_at:
        yield f"started   {clock(saga.created_at, 'seconds')} {zone()} ({age(saga.created_at)} ago)"
        last = "ended" if saga.finished_at else "changed"
        yield f"{last:<9} {clock(saga.updated_at, 'seconds')} {zone()} ({age(saga.updated_at)} ago)"


def _steps(saga: SagaRun) -> Iterator[str]:
    plan = plan_of(saga.name, saga.version)
    if plan is None:
        yield f"steps     this process does not know {saga.name} version {saga.version}: only begun steps are shown"
    state = State(saga.status, saga.seq, dict(saga.steps or {}), saga.cancel_requested, saga.parked_from, saga.error)
    for line in step_lines(saga.id, plan, state):
        yield step_text(line)


def step_text(line: StepLine) -> str:
    """One step in words."""
    state, parts = line.state, []
    if line.plan is not None:
        parts.append(("external" if line.plan.external else "local") + (" pivot" if line.plan.pivot else ""))
    parts += [f"{state.do.attempts} attempts"] if state.do.attempts else []
    parts += [f"{state.undo.attempts} undo attempts"] if state.undo.attempts else []
    parts += ["outcome of an attempt unknown"] if line.unknown else []
    parts += [f"next: {word(DIRECTION, line.next)}"] if line.next else []
    return f"step      {line.name:<24} {word(STEP_STATUS, state.status):<15} {', '.join(parts)}".rstrip()


def outbox_text(row: OutboxRow) -> str:
    """One outbox row in words."""
    what = f"{row.step} ({word(DIRECTION, row.direction)})" if row.step else word(REQUEST, row.kind)
    held = f"held by {row.holder} until" if row.holder else "held by nobody, due"
    return (
        f"outbox    {what:<24} {held} {clock(row.due_at, 'seconds')} ({from_now(row.due_at)}), queue {row.queue}, "
        f"{row.deliveries} deliveries, {row.failures} failures"
    )


def entry_text(entry: LogEntry) -> str:
    """One log line in words; payloads are left out."""
    data: dict[str, Any] = entry.data
    parts = [f"{word(KIND, entry.kind):<22}", entry.step or ""]
    if entry.attempt:
        parts.append(f"attempt {entry.attempt}")
    if data.get("source") and data["source"] != "body":
        parts.append(f"answered by {word(SOURCE, data['source'])}")
    for name in ("reason", "actor"):
        if data.get(name):
            parts.append(f"{name}: {data[name]}")
    if data.get("ignored"):
        parts.append("changed nothing")
    if data.get("unknown"):
        parts.append("outcome unknown")
    if data.get("retry_in") is not None:
        parts.append(f"again after {data['retry_in']:.1f} s")
    if data.get("error"):
        parts.append(f"{data['error'].get('type', '')}: {data['error'].get('message', '')}")
    return one_line("  ".join(part for part in parts if part))


def one_line(text: str) -> str:
    """Text without line breaks and control characters, which would let an error message forge lines."""
    return "".join(each if each.isprintable() else " " for each in text)


def ask(database: str, wanted: str, kind: str, reason: str) -> SagaRun:
    """Insert a request for a worker to apply.

    Raises:
        NotPossible: nothing would come of it in the saga's present status.
    """
    saga = find(database, wanted)
    if not machine.answers(saga.status, OPERATIONS[kind]):
        possible = [each for each, event in OPERATIONS.items() if machine.answers(saga.status, event)]
        raise NotPossible(
            f"{kind}: saga {saga.name} {saga.id} (key {saga.key!r}) is {saga.status}, where this changes nothing; "
            f"possible now: {', '.join(possible) or 'nothing, it has ended'}"
        )
    return engine.request(None, kind, id=saga.id, reason=reason, actor=f"cli:{_user()}", using=database)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "unknown"


def verification(database: str, wanted: list[str], complain: Callable[[str], Any]) -> tuple[int, int]:
    """Compare sagas with their logs; returns how many were looked at and how many problems there are."""
    check_ready(database)
    ids = [find(database, each).id for each in wanted] or None
    seen = problems = 0
    with DjangoStore(database).connect() as connection:
        for found in verify(connection, ids):
            if isinstance(found, Finding):
                problems += 1
                complain(str(found))
            else:
                seen = found
    return seen, problems


def rebuilding(
    database: str, wanted: list[str], say: Callable[[str], Any], complain: Callable[[str], Any]
) -> tuple[int, int]:  # fmt: skip
    """Make rows again from logs; returns how many sagas were changed and how many could not be rebuilt."""
    check_ready(database)
    ids = [_id(database, each) for each in wanted] or None
    changed = problems = 0
    with DjangoStore(database).connect() as connection:
        for found in rebuild(connection, ids):
            if found.problem:
                problems += 1
                complain(f"{found.label}: {found.problem}")
            elif found.changed:
                changed += 1
                say(f"{found.label}: rows made again from its log")
    return changed, problems


def _id(database: str, wanted: str) -> UUID:
    """An id as it is, since its row may be gone; name:key by its row."""
    try:
        return UUID(wanted)
    except ValueError:
        return find(database, wanted).id
