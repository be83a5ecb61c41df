"""Plain messages in the admin: what waits, what has died, and sending it again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connections, router, transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from sagas_django.admin_base import ReadOnlyAdmin, badge, moment
from sagas_django.admin_filters import as_uuid
from sagas_django.models import MessageRow
from sagas_django.wording import from_now
from sagas_outbox.queries import query

MOST_PAYLOAD = 10_000  # characters
MOST_AT_ONCE = 1_000  # messages; each gets an entry in the admin's log
EVERY = "manage.py sagas messages replay all"
STATE = {"waiting": gettext_lazy("waiting"), "dead": gettext_lazy("dead"), "sent": gettext_lazy("sent")}


class StateFilter(admin.SimpleListFilter):
    """Messages in one state."""

    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, Any]]:
        return list(STATE.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(state=self.value()) if self.value() in STATE else queryset


@admin.register(MessageRow)
class MessageAdmin(ReadOnlyAdmin):
    """Messages, the oldest first."""

    list_display = (
        "shown_state",
        "shown_id",
        "shown_destination",
        "shown_key",
        "shown_due",
        "shown_tries",
        "shown_error",
    )
    list_display_links = ("shown_id",)
    list_filter = (StateFilter,)
    search_fields = ("message_id",)
    search_help_text = gettext_lazy("Exactly a message's id, or an ordering key")
    ordering = ("id",)
    actions = ("replay_messages",)
    fields = (
        "message_id", "destination", "ordering_key", "state", "due_at", "holder", "failures", "error", "created_at",
        "finished_at", "options", "headers", "shown_payload",
    )  # fmt: skip
    readonly_fields = ("shown_payload",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        id = as_uuid(term)
        return queryset.filter(ordering_key=term) if id is None else queryset.filter(message_id=id), False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("payload", "options", "headers")

    def has_replay_permission(self, request: HttpRequest) -> bool:
        user: Any = request.user
        return self.has_view_permission(request) and bool(user.has_perm("sagas.replay_message"))

    @admin.action(permissions=["replay"], description=gettext_lazy("Send dead messages again"))
    def replay_messages(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Those of the chosen that are dead wait again, as if they had never failed."""
        found = queryset.filter(state="dead").values_list("message_id", flat=True)[: MOST_AT_ONCE + 1]
        ids = [str(id) for id in found]
        if len(ids) > MOST_AT_ONCE:
            said = _("At most %(most)d messages at once: narrow the list, or run `%(command)s`.")
            self.message_user(request, said % {"most": MOST_AT_ONCE, "command": EVERY}, messages.ERROR)
            return
        kind, alias = ContentType.objects.get_for_model(MessageRow), queryset.db
        with transaction.atomic(using=router.db_for_write(LogEntry)), transaction.atomic(using=alias):
            with connections[alias].cursor() as cursor:
                cursor.execute(query("sagas_outbox", "replay_messages"), {"ids": ids, "every": False, "now": None})
                done = [str(id) for (id,) in cursor.fetchall()]
            LogEntry.objects.bulk_create(
                LogEntry(user_id=request.user.pk, content_type=kind, object_repr=id, action_flag=CHANGE,
                         change_message=_("sent again"))
                for id in done
            )  # fmt: skip
        said = ngettext("%(count)d dead message is sent again", "%(count)d dead messages are sent again", len(done))
        self.message_user(request, said % {"count": len(done)}, messages.SUCCESS if done else messages.WARNING)

    @admin.display(description=gettext_lazy("state"))
    def shown_state(self, row: MessageRow) -> SafeString:
        return badge("message", row.state, str(STATE.get(row.state, row.state)))

    @admin.display(description=gettext_lazy("message"))
    def shown_id(self, row: MessageRow) -> str:
        return str(row.message_id)

    @admin.display(description=gettext_lazy("destination"))
    def shown_destination(self, row: MessageRow) -> str:
        return str(row.destination)

    @admin.display(description=gettext_lazy("ordering key"))
    def shown_key(self, row: MessageRow) -> Any:
        return row.ordering_key

    @admin.display(description=gettext_lazy("due"))
    def shown_due(self, row: MessageRow) -> SafeString | None:
        return moment(row.due_at, from_now(row.due_at)) if row.finished_at is None else None

    @admin.display(description=gettext_lazy("failures"))
    def shown_tries(self, row: MessageRow) -> int:
        return int(row.failures)

    @admin.display(description=gettext_lazy("last error"))
    def shown_error(self, row: MessageRow) -> str:
        return str(row.error)[:120]

    @admin.display(description=gettext_lazy("payload"))
    def shown_payload(self, row: MessageRow) -> str:
        return json.dumps(row.payload)[:MOST_PAYLOAD]
