"""The admin: sagas with their logs, the outbox, and the dedupe table. It looks and asks, and edits nothing."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from sagas import machine
from sagas.payloads import shown_value
from sagas.progress import StepLine, plan_of, state_of, step_lines, to_undo
from sagas.states import StepStatus
from sagas.why import told, why
from sagas_django import wording
from sagas_django.admin_base import ReadOnlyAdmin, badge, moment
from sagas_django.admin_board import BoardAdmin
from sagas_django.admin_decide import DecideAdmin
from sagas_django.admin_failures import FailuresAdmin
from sagas_django.admin_family import family, held_by
from sagas_django.admin_filters import (
    HolderFilter,
    NameFilter,
    QueueFilter,
    StatusFilter,
    as_uuid,
    search_sagas,
)
from sagas_django.admin_graph import graph
from sagas_django.admin_inline import SagaInline as SagaInline
from sagas_django.admin_lanes import lanes
from sagas_django.admin_locks import LocksAdmin, locks_of
from sagas_django.admin_messages import MessageAdmin as MessageAdmin
from sagas_django.admin_pauses import PausesAdmin
from sagas_django.admin_queues import QueuesAdmin
from sagas_django.admin_redo import RedoAdmin
from sagas_django.admin_schedules import ScheduleAdmin as ScheduleAdmin
from sagas_django.admin_signal import SignalAdmin
from sagas_django.admin_timeline import (
    LAST,
    MOST_PAYLOAD,
    dedupe_records,
    last_errors,
    outbox_rows,
    signals,
    skip_reasons,
    subject_link,
    timeline,
    work_of,
)
from sagas_django.models import DedupeRecord, OutboxRow, SagaRow
from sagas_django.operate import current_step, rows
from sagas_django.wording import DIRECTION, STATUS, STEP_STATUS, age, from_now, word

Rows = QuerySet[Any]


@admin.register(SagaRow)
class SagaAdmin(
    BoardAdmin, FailuresAdmin, LocksAdmin, QueuesAdmin, SignalAdmin, DecideAdmin, RedoAdmin, PausesAdmin
):  # fmt: skip
    """Sagas, newest first, and the page of each, with what can be asked for."""

    list_display = ("shown_status", "shown_name", "shown_key", "shown_step", "shown_age", "shown_change")
    list_display_links = ("shown_name", "shown_key")
    list_filter = (StatusFilter, NameFilter)
    search_fields = ("id",)  # makes the box appear; get_search_results does the rest
    search_help_text = _("Exactly an id, a key, or name:key")
    ordering = ("-id",)
    change_form_template = "admin/sagas/sagarow/change_form.html"

    def get_search_results(self, request: HttpRequest, queryset: Rows, search_term: str) -> tuple[Rows, bool]:
        return (search_sagas(queryset, search_term) if search_term.strip() else queryset), False

    @admin.display(description=_("status"))
    def shown_status(self, saga: SagaRow) -> SafeString:
        return badge("status", saga.status, word(STATUS, saga.status))

    @admin.display(description=_("name"))
    def shown_name(self, saga: SagaRow) -> str:
        return f"{saga.name} v{saga.version}"

    @admin.display(description=_("key"))
    def shown_key(self, saga: SagaRow) -> str:
        return saga.key if saga.run == 1 else f"{saga.key} ({saga.run})"

    @admin.display(description=_("current step"))
    def shown_step(self, saga: SagaRow) -> str:
        held = getattr(saga, "held_by", ())
        reasons = why(saga, (), held)  # pauses of whole queues and definitions have a page of their own
        texts = [told(reason, wording) for reason in reasons]
        if not any("step" in reason.values for reason in reasons):  # which names it
            texts.insert(0, current_step(saga))
        return "; ".join(filter(None, texts))

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        answer = super().changelist_view(request, extra_context)
        listed = getattr(answer, "context_data", None) or {}
        if "cl" in listed:
            found = listed["cl"].result_list
            held = held_by(self.get_queryset(request), found)
            for saga in found:
                saga.held_by = held
        return answer

    @admin.display(description=_("age"))
    def shown_age(self, saga: SagaRow) -> SafeString:
        return moment(saga.created_at, age(saga.created_at))

    @admin.display(description=_("last change"))
    def shown_change(self, saga: SagaRow) -> SafeString:
        return moment(saga.updated_at, from_now(saga.updated_at))

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        return super().changeform_view(request, object_id, form_url, {**(extra_context or {}), "title": _("Saga")})

    def render_change_form(
        self, request: HttpRequest, context: Any, add: bool = False, change: bool = False, form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:  # fmt: skip
        context.update(self.page(request, obj))
        return super().render_change_form(request, context, add, change, form_url, obj)

    @staticmethod
    def _step(line: StepLine, skipped: dict[str, str], errors: dict[str, str]) -> dict[str, Any]:
        state = line.state
        return {
            "line": line, "status": word(STEP_STATUS, state.status), "next": word(DIRECTION, line.next),
            "skipped": skipped.get(line.name, ""), "queued": len(state.signals), "error": errors.get(line.name, ""),
        }  # fmt: skip

    def _reasons(self, request: HttpRequest, saga: SagaRow) -> list[dict[str, Any]]:
        """Why a saga does not go on, what to do about each, and the page of the other saga that has to go on first."""
        sagas = self.get_queryset(request)
        found = why(saga, rows(sagas.db, "pauses", {}), held_by(sagas, [saga]))
        return [
            {"text": told(reason, wording), "next": word(wording.NEXT, reason.text), "saga": reason.values.get("id")}
            for reason in found
        ]  # fmt: skip

    def page(self, request: HttpRequest, saga: SagaRow) -> dict[str, Any]:
        """What the page of one saga shows."""
        alias = saga._state.db or "default"
        before = request.GET.get("before", "")
        entries, earlier = timeline(alias, saga.pk, int(before) if _number(before) else LAST)
        plan, state = plan_of(saga.name, saga.version), state_of(saga)
        steps = [] if state is None else step_lines(saga.pk, plan, state)
        ended, errors = state is not None and machine.finished(state), last_errors(entries)
        skipped = skip_reasons(alias, saga.pk) if any(line.state.status is StepStatus.SKIPPED for line in steps) else {}
        return {
            "saga": saga,
            "status_word": word(STATUS, saga.status),
            "parked_from_word": word(STATUS, saga.parked_from),
            "age": age(saga.created_at),
            "zone": wording.zone(),
            "changed": from_now(saga.updated_at),
            "finished": ended,
            "graph": graph(plan, steps),
            "lanes": lanes(entries, finished=ended),
            "family": family(self.get_queryset(request), saga, plan),
            "locks": locks_of(alias, saga.pk, plan),
            "plan_known": plan is not None,
            "buttons": self.buttons(request, saga),
            "readable": state is not None,
            "subject_url": subject_link(request, self.admin_site, saga),
            "steps": [self._step(line, skipped, errors) for line in steps],
            "to_undo": () if plan is None or state is None else to_undo(plan, state),
            "signals": signals(entries, state),
            "reasons": self._reasons(request, saga),
            "deadline": saga.deadline and from_now(saga.deadline),
            "outbox": outbox_rows(alias, saga.pk),
            "dedupe": dedupe_records(alias, saga.pk),
            "entries": entries,
            "earlier": earlier and entries[0].seq,
            "later": _number(before),
        }


@admin.register(OutboxRow)
class OutboxAdmin(ReadOnlyAdmin):
    """What must be run or delivered, oldest row first."""

    list_display = (
        "shown_id",
        "shown_queue",
        "shown_work",
        "shown_saga",
        "shown_due",
        "shown_holder",
        "shown_deliveries",
    )
    list_filter = (QueueFilter, HolderFilter)
    search_fields = ("saga_id",)
    search_help_text = _("Exactly a saga's id")
    ordering = ("id",)
    fields = (
        "shown_saga", "kind", "step", "direction", "queue", "priority", "lane", "ordering_key", "place", "due_at",
        "timer_at", "holder", "token", "publishes", "deliveries", "failures", "first_begun_at", "progress", "headers",
        "shown_payload",
    )  # fmt: skip
    readonly_fields = ("shown_saga", "shown_payload")

    def get_queryset(self, request: HttpRequest) -> Rows:
        return super().get_queryset(request).defer("payload", "headers")

    def get_search_results(self, request: HttpRequest, queryset: Rows, search_term: str) -> tuple[Rows, bool]:
        return by_saga(queryset, search_term), False

    @admin.display(description=_("row"))
    def shown_id(self, row: OutboxRow) -> int:
        return int(row.pk)

    @admin.display(description=_("queue"))
    def shown_queue(self, row: OutboxRow) -> str:
        return str(row.queue)

    @admin.display(description=_("work"))
    def shown_work(self, row: OutboxRow) -> str:
        return work_of(row)

    @admin.display(description=_("saga"))
    def shown_saga(self, row: OutboxRow) -> SafeString | None:
        return saga_link(self.admin_site, row.saga_id)

    @admin.display(description=_("due"))
    def shown_due(self, row: OutboxRow) -> SafeString:
        return moment(row.due_at, from_now(row.due_at))

    @admin.display(description=_("holder"))
    def shown_holder(self, row: OutboxRow) -> Any:
        return row.holder

    @admin.display(description=_("deliveries"))
    def shown_deliveries(self, row: OutboxRow) -> int:
        return int(row.deliveries)

    @admin.display(description=_("payload"))
    def shown_payload(self, row: OutboxRow) -> str | None:
        """What a request says, and the signal or result that comes with it as it may be shown."""
        if not isinstance(row.payload, dict):
            return None
        return _as_text({name: shown_value(value) for name, value in row.payload.items()})


@admin.register(DedupeRecord)
class DedupeAdmin(ReadOnlyAdmin):
    """What is known about effects, by idempotency key."""

    list_display = ("shown_key", "shown_state", "shown_saga", "shown_created")
    search_fields = ("key",)
    search_help_text = _("Exactly an idempotency key, or a saga's id")
    ordering = ("key",)
    fields = ("key", "state", "shown_saga", "token", "fingerprint", "created_at", "expires_at", "shown_response")
    readonly_fields = ("shown_saga", "shown_response")

    def get_queryset(self, request: HttpRequest) -> Rows:
        return super().get_queryset(request).defer("response")

    def get_search_results(self, request: HttpRequest, queryset: Rows, search_term: str) -> tuple[Rows, bool]:
        if search_term.strip() and as_uuid(search_term) is None:
            return queryset.filter(key=search_term.strip()), False
        return by_saga(queryset, search_term), False

    @admin.display(description=_("idempotency key"))
    def shown_key(self, record: DedupeRecord) -> str:
        return str(record.key)

    @admin.display(description=_("state"))
    def shown_state(self, record: DedupeRecord) -> str:
        return str(record.state)

    @admin.display(description=_("saga"))
    def shown_saga(self, record: DedupeRecord) -> SafeString | None:
        return saga_link(self.admin_site, record.saga_id)

    @admin.display(description=_("created"))
    def shown_created(self, record: DedupeRecord) -> SafeString:
        return moment(record.created_at)

    @admin.display(description=_("response"))
    def shown_response(self, record: DedupeRecord) -> str | None:
        return None if record.response is None else _as_text(shown_value(record.response))


def _as_text(payload: Any) -> str:
    return json.dumps(payload)[:MOST_PAYLOAD]


def _number(text: str) -> bool:
    """Whether it can be the number of a log entry."""
    return text.isdecimal() and len(text) < 10


def by_saga(queryset: Rows, term: str) -> Rows:
    """Rows of exactly this saga; all without a term, none when it is no id."""
    if not term.strip():
        return queryset
    id = as_uuid(term)
    return queryset.none() if id is None else queryset.filter(saga_id=id)


def saga_link(site: admin.AdminSite, saga_id: Any) -> SafeString | None:
    """A link to the page of a saga."""
    if saga_id is None:
        return None
    return format_html('<a href="{}">{}</a>', reverse(f"{site.name}:sagas_sagarow_change", args=[saga_id]), saga_id)
