"""Schedules in the admin: when their next ticks are, what they started last, and pausing, resuming and running one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode
from uuid import uuid4

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.contrib.admin.widgets import AdminTextareaWidget
from django.core.exceptions import PermissionDenied
from django.db import router, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from sagas.desk import connected
from sagas.errors import SagaError
from sagas.schedules import firing, state, table
from sagas_django import wording
from sagas_django.admin_actions import AskForm
from sagas_django.admin_base import ReadOnlyAdmin, moment
from sagas_django.models import SagaRow, ScheduleRow
from sagas_django.operate import rows
from sagas_django.store import DjangoStore
from sagas_django.wording import STATUS, from_now, here, word

ASK: Final = ("GET", "HEAD", "POST")
SHOWN: Final = 5  # ticks on the page of a schedule
LABEL: Final = {
    "pause": gettext_lazy("Pause"),
    "resume": gettext_lazy("Resume"),
    "run": gettext_lazy("Run now"),
}
DOES: Final = {
    "pause": gettext_lazy("It starts nothing until it is resumed. What it leaves out is not made up for."),
    "resume": gettext_lazy("It goes on from now on. What the pause has left out is not made up for."),
    "run": gettext_lazy("It starts its saga once, now. Its ticks stay as they are."),
}


class ReasonForm(AskForm):
    """Why, and the nonce of this form."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=firing.MAX_REASON,
        widget=AdminTextareaWidget(attrs={"rows": 3, "autofocus": True}),
        help_text=gettext_lazy("Kept with your name: in the admin's log, and with the schedule or the saga."),
    )


@admin.register(ScheduleRow)
class ScheduleAdmin(ReadOnlyAdmin):
    """Schedules, by name, and the page of each, with what may be asked for."""

    list_display = ("shown_name", "shown_saga", "shown_timing", "shown_next", "shown_last", "shown_remarks")
    list_display_links = ("shown_name",)
    search_fields = ("name",)
    ordering = ("name",)
    change_form_template = "admin/sagas/schedulerow/change_form.html"

    @admin.display(description=gettext_lazy("name"))
    def shown_name(self, row: ScheduleRow) -> str:
        return str(row.name)

    @admin.display(description=gettext_lazy("saga"))
    def shown_saga(self, row: ScheduleRow) -> str:
        return f"{row.saga} v{row.version}"

    @admin.display(description=gettext_lazy("when"))
    def shown_timing(self, row: ScheduleRow) -> str:
        return str(row.timing) if row.timing.startswith("every") else f"{row.timing} {row.timezone}"

    @admin.display(description=gettext_lazy("next tick"))
    def shown_next(self, row: ScheduleRow) -> SafeString | None:
        ticks = state.next_ticks(row, 1)
        return moment(here(ticks[0]), from_now(ticks[0])) if ticks else None

    @admin.display(description=gettext_lazy("last run"))
    def shown_last(self, row: ScheduleRow) -> SafeString | None:
        if row.last_started_at is None:
            return None
        return format_html('<a href="{}">{}</a>', self._last_url(row), moment(row.last_started_at))

    @admin.display(description=gettext_lazy("remarks"))
    def shown_remarks(self, row: ScheduleRow) -> str:
        late = (timezone.now() - row.look_at).total_seconds()
        return "; ".join(state.remarks(row, late, wording))

    # --- the page of one ---

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.ask_view)
        return [path("ask/<str:kind>/", view, name="sagas_schedulerow_ask"), *super().get_urls()]

    def render_change_form(
        self, request: HttpRequest, context: Any, add: bool = False, change: bool = False, form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:  # fmt: skip
        alias = obj._state.db or "default"
        (found,) = rows(alias, "schedules", {"name": obj.name, "now": None}) or (None,)
        if found is None:
            raise Http404
        context.update({
            "title": _("Schedule"), "schedule": obj, "timing": self.shown_timing(obj), "row": found,
            "declared": state.declared(obj) is not None,
            "ticks": [(tick.isoformat(" ", "seconds"), from_now(tick)) for tick in state.next_ticks(obj, SHOWN)],
            "remarks": list(state.remarks(obj, found.late, wording)), "last_url": self._last_url(obj),
            "last_status": word(STATUS, found.last_status),
            "buttons": [
                {"label": LABEL[kind], "does": DOES[kind], "url": self._ask_url(kind, obj)}
                for kind in self._kinds(obj) if self._may(request, kind)
            ],
        })  # fmt: skip
        return super().render_change_form(request, context, add, change, form_url, obj)

    @staticmethod
    def _kinds(row: ScheduleRow) -> list[str]:
        """What may be asked for as it stands: only code that declares it can make the input of a run."""
        return ["resume" if row.paused else "pause", *(["run"] if state.declared(row) else [])]

    def _may(self, request: HttpRequest, kind: str) -> bool:
        user: Any = request.user
        return self.has_view_permission(request) and bool(user.has_perm(f"sagas.{kind}_schedule"))

    def _url(self, page: str, *arguments: Any) -> str:
        return reverse(f"{self.admin_site.name}:sagas_schedulerow_{page}", args=arguments)

    def _ask_url(self, kind: str, row: ScheduleRow) -> str:
        return f"{self._url('ask', kind)}?{urlencode({'schedule': row.name})}"

    def _last_url(self, row: ScheduleRow) -> str:
        searched = urlencode({"q": f"{row.saga}:{row.last_key}"})
        return f"{reverse(f'{self.admin_site.name}:{SagaRow._meta.app_label}_sagarow_changelist')}?{searched}"

    # --- asking ---

    def ask_view(self, request: HttpRequest, kind: str) -> HttpResponse:
        """GET says what would happen, and asks why; POST does it."""
        if request.method not in ASK:
            return HttpResponseNotAllowed(ASK)
        if kind not in LABEL:
            raise Http404
        if not self._may(request, kind):
            raise PermissionDenied
        row = self.get_object(request, request.GET.get("schedule", ""))
        if row is None:
            raise Http404
        possible = kind in self._kinds(row)
        form = ReasonForm(request.POST) if request.method == "POST" else ReasonForm(initial={"nonce": uuid4()})
        if request.method != "POST" or not possible or not form.is_valid():
            return self._page(request, kind, row, form, possible)
        try:
            said = self._do(request, kind, row, form.cleaned_data)
        except SagaError as problem:
            self.message_user(request, str(problem), messages.ERROR)
        else:
            self.message_user(request, said, messages.SUCCESS)
        return HttpResponseRedirect(self._url("change", row.pk))

    def _page(
        self, request: HttpRequest, kind: str, row: ScheduleRow, form: forms.Form, possible: bool
    ) -> TemplateResponse:  # fmt: skip
        context = {
            **self.admin_site.each_context(request), "title": LABEL[kind], "opts": self.opts,
            "media": self.media + form.media, "form": form, "submit": LABEL[kind], "saga": row,
            "back_url": self._url("change", row.pk), "texts": [DOES[kind]],
            "problem": "" if possible else _("as the schedule stands now there is nothing to do"),
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/sagas/sagarow/form.html", context)

    def _do(self, request: HttpRequest, kind: str, row: ScheduleRow, given: dict[str, Any]) -> str:
        """Do it, and note it in the admin's log; the log entry goes where it fails."""
        store = DjangoStore(row._state.db or "default")
        actor, reason = f"admin:{request.user.get_username()}", given["reason"]
        done: dict[str, Callable[[Any], object]] = {
            "pause": lambda wire: table.pause(wire, row.name, actor=actor, reason=reason),
            "resume": lambda wire: table.resume(wire, row.name),
            "run": lambda wire: firing.run_now(
                wire, store.settings, row.name, reason=reason, actor=actor, nonce=given["nonce"]
            ),
        }
        said = {"action": LABEL[kind], "reason": reason, "schedule": row.name}
        if kind == "run" and row.last_key == f"{row.name}@run-{given['nonce']}":
            return _("%(action)s: %(schedule)s") % said + " " + _("(This form was sent before; it counts once.)")
        with transaction.atomic(using=router.db_for_write(LogEntry)), connected(store) as wire:
            self.log_change(request, row, _("%(action)s: %(reason)s") % said)
            done[kind](wire)
        return _("%(action)s: %(schedule)s") % said
