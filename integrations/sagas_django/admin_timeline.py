"""What the page of one saga shows besides its row: its log as a timeline, its work, its dedupe records."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from django.apps import apps
from django.contrib.admin import AdminSite
from django.db import connections
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _

from sagas.desk import PACKAGE as CORE
from sagas.events import Direction, Kind, Source
from sagas.operate import bounded
from sagas.states import State
from sagas_django.models import LogEntry, OutboxRow, SagaRow
from sagas_django.wording import DIRECTION, KIND, REQUEST, SOURCE, clock, from_now, here, span, word
from sagas_outbox.queries import query

MOST_ENTRIES: Final = 200  # of a log, on one page
MOST_PAYLOAD: Final = 4_000  # characters of a payload
MOST_RECORDS: Final = 100  # outbox rows and dedupe records
LAST: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    """A payload as text, or its beginning."""

    label: str
    text: str
    size: int  # characters of the whole
    cut: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineEntry:
    """One log entry in words."""

    seq: int
    at: datetime
    since: str  # time since the entry before it
    kind: str
    label: str
    step: str
    direction: str
    attempt: int
    token: int | None
    unknown: bool
    ignored: bool
    error: str
    traceback: str
    facts: list[tuple[str, str]]
    actor: str
    back: bool  # about undoing or settling
    begun: datetime | None  # when the attempt it is about began, or the first of those under its key
    payload: Payload | None


def timeline(alias: str, saga_id: UUID, before: int = LAST) -> tuple[list[TimelineEntry], bool]:
    """The newest entries of a log in order, and whether there are earlier ones.

    Args:
        alias: the database.
        saga_id: the saga.
        before: only entries with a lower `seq`.
    """
    rows = fetch(alias, "timeline", package=CORE, saga=saga_id, before=before, limit=MOST_ENTRIES + 1)
    return [_entry(row) for row in reversed(rows[:MOST_ENTRIES])], len(rows) > MOST_ENTRIES


def fetch(alias: str, name: str, *, package: str = "sagas_django", **parameters: Any) -> list[dict[str, Any]]:
    with connections[alias].cursor() as cursor:
        cursor.execute(query(package, name), {"payload": MOST_PAYLOAD + 1, **parameters})
        columns = [column[0] for column in cursor.description]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def _entry(row: dict[str, Any]) -> TimelineEntry:
    facts: dict[str, Any] = json.loads(row["facts"])
    error = facts.get("error") if isinstance(facts.get("error"), dict) else None
    error = error or {}
    return TimelineEntry(
        seq=row["seq"], at=row["at"], kind=row["kind"], label=word(KIND, row["kind"]),
        since="" if row["previous_at"] is None else span(row["at"] - row["previous_at"]),
        step=row["step"] or "", direction=word(DIRECTION, facts.get("direction")), attempt=row["attempt"],
        token=row["token"], unknown=bool(facts.get("unknown")), ignored=bool(facts.get("ignored")),
        error=f"{error.get('type', '')}: {error.get('message', '')}" if error else "",
        traceback=str(error.get("traceback", "")), facts=_words(facts), actor=str(facts.get("actor", "")),
        back=facts.get("direction") in (Direction.UNDO, Direction.SETTLE),
        begun=_moment(facts.get("first_begun_at")),
        payload=_payload(_payload_label(row["kind"]), row),
    )  # fmt: skip


def _moment(seconds: Any) -> datetime | None:
    return here(datetime.fromtimestamp(seconds, UTC)) if isinstance(seconds, int | float) else None


def _payload_label(kind: str) -> str:
    if kind == Kind.SIGNALLED:
        return _("Signal")
    return _("Input") if kind == Kind.STARTED else _("Result")


def skip_reasons(alias: str, saga_id: UUID) -> dict[str, str]:
    """Why steps of a saga were skipped, by step."""
    skipped = LogEntry.objects.using(alias).filter(saga_id=saga_id, kind=Kind.STEP_SKIPPED)
    return {entry.step: str(entry.data.get("reason", "")) for entry in skipped}


def _words(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts that have a line of their own."""
    source = facts.get("source")
    found = [
        (_("answered by"), "" if source == Source.BODY else word(SOURCE, source)),
        (_("reason"), str(facts.get("reason", ""))),
        (_("asked by"), str(facts.get("actor", ""))),
    ]
    if isinstance(facts.get("until"), int | float):
        found.append((_("until"), clock(datetime.fromtimestamp(facts["until"], UTC), "seconds")))
    if facts.get("ref") is not None:
        found.append((_("of entry"), str(facts["ref"])))
    if facts.get("continued"):
        found.append((_("goes on as saga"), str(facts["continued"])))
    if isinstance(facts.get("retry_in"), int | float):
        found.append((_("again after"), _("%(s).1f s") % {"s": facts["retry_in"]}))
    if facts.get("deliveries", 0) > 1:
        found.append((_("begun bodies accounted for"), str(facts["deliveries"])))
    return [(name, value) for name, value in found if value]


def _payload(label: str, row: dict[str, Any]) -> Payload | None:
    text = row["payload"]
    if text is None or text == "null":
        return None
    return Payload(label=label, text=text[:MOST_PAYLOAD], size=row["size"], cut=len(text) > MOST_PAYLOAD)


def last_errors(entries: list[TimelineEntry]) -> dict[str, str]:
    """What last went wrong with each step, as far as the entries tell; nothing of one that has succeeded since."""
    found: dict[str, str] = {}
    for entry in entries:
        if entry.step and entry.error:
            found[entry.step] = entry.error
        elif entry.kind in (Kind.STEP_DONE, Kind.UNDO_DONE, Kind.SETTLE_DONE):
            found.pop(entry.step, None)
    return found


def signals(entries: list[TimelineEntry], state: State | None) -> list[dict[str, Any]]:
    """The signals that the entries tell of, each with what became of it."""
    waiting = {seq for step in state.steps.values() for seq in step.signals} if state else set()

    def fate(entry: TimelineEntry) -> str:
        if entry.ignored:
            return _("came too late, or nobody waits for it")
        return _("waits to be taken") if entry.seq in waiting else _("was taken")

    return [{"entry": entry, "fate": fate(entry)} for entry in entries if entry.kind == Kind.SIGNALLED]


def dedupe_records(alias: str, saga_id: UUID) -> list[dict[str, Any]]:
    """What the dedupe table knows about the saga's effects."""
    rows = fetch(alias, "dedupe", saga=saga_id, limit=MOST_RECORDS)
    return [row | {"response": _payload(_("Response"), row)} for row in rows]


def outbox_rows(alias: str, saga_id: UUID) -> list[dict[str, Any]]:
    """The saga's work: who holds it, and when it is due."""
    rows = OutboxRow.objects.using(alias).defer("payload", "headers").filter(saga_id=saga_id).order_by("id")
    return [
        {"row": row, "work": work_of(row), "due": from_now(row.due_at),
         "progress": "" if row.progress is None else bounded(row.progress)}
        for row in rows[:MOST_RECORDS]
    ]  # fmt: skip


def work_of(row: OutboxRow) -> str:
    """What an outbox row is about."""
    if row.step is None:
        return _("request: %(kind)s") % {"kind": word(REQUEST, row.kind)}
    return f"{row.step} ({word(DIRECTION, row.direction)})"


def subject_link(request: HttpRequest, site: AdminSite, saga: SagaRow) -> str | None:
    """The admin page of the business object that the saga is about; None when this user has none."""
    try:
        model = apps.get_model(saga.subject_type or "")
    except (LookupError, ValueError):
        return None
    if not site.is_registered(model) or not site.get_model_admin(model).has_view_permission(request):
        return None
    try:
        page = f"{site.name}:{model._meta.app_label}_{model._meta.model_name}_change"
        return reverse(page, args=[saga.subject_id])
    except NoReverseMatch:
        return None
