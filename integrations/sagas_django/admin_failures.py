"""What went wrong, grouped: by definition, step and error, however many sagas it has met."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from sagas_django.admin_actions import AskingAdmin
from sagas_django.admin_bulk import MOST_ENDED, MOST_FAILED, MOST_GROUPS, failures
from sagas_django.wording import ACTION, age, word

GROUP_KINDS = ("retry", "cancel", "abort")


class FailuresAdmin(AskingAdmin):
    """Has a page of failures, and lets those who may ask for something for all of a group."""

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.failures_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_failures"
        return [path("failures/", view, name=name), *super().get_urls()]

    def failures_view(self, request: HttpRequest) -> HttpResponse:
        """The groups, those with most parked sagas first."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        kinds = [kind for kind in GROUP_KINDS if self.may_ask(request, kind)]
        groups = [
            group | {"first": age(group["first_at"]), "last": age(group["last_at"]), "asks": self._asks(kinds, group)}
            for group in failures(self.get_queryset(request).db, "failures_groups", limit=MOST_GROUPS)
        ]
        context = {
            **self.admin_site.each_context(request), "title": _("Failures"), "opts": self.opts, "media": self.media,
            "groups": groups, "most": MOST_FAILED, "most_ended": MOST_ENDED,
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/sagas/sagarow/failures.html", context)

    def _asks(self, kinds: list[str], group: dict[str, Any]) -> list[dict[str, Any]]:
        if not group["parked"]:
            return []
        query = urlencode({"group": group["token"]})
        return [{"label": word(ACTION, kind), "url": f"{self.ask_url(kind)}?{query}"} for kind in kinds]
