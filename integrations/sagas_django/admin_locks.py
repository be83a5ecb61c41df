"""Semantic locks: a page that lists who holds what and who waits for it, and the same on the page of one saga."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.translation import gettext as _

from sagas.plan import Plan
from sagas_django.admin_actions import AskingAdmin
from sagas_django.operate import rows
from sagas_django.wording import STATUS, age, word

MOST: Final = 500  # on the page


class LocksAdmin(AskingAdmin):
    """Has a page of semantic locks."""

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.locks_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_locks"
        return [path("locks/", view, name=name), *super().get_urls()]

    def locks_view(self, request: HttpRequest) -> HttpResponse:
        """Each subject, who holds it, and under it who waits, longest first."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = _lines(self.get_queryset(request).db, None, MOST + 1)
        context = {
            **self.admin_site.each_context(request), "title": _("Semantic locks"), "opts": self.opts,
            "media": self.media, "locks": found[:MOST], "more": len(found) > MOST,
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/sagas/sagarow/locks.html", context)


def locks_of(alias: str, saga_id: UUID, plan: Plan | None) -> list[dict[str, Any]]:
    """What a saga holds and waits for, and who else is concerned; one that can hold nothing costs no query."""
    return _lines(alias, saga_id, MOST) if plan is not None and plan.has_locks else []


def _lines(alias: str, saga_id: UUID | None, limit: int) -> list[dict[str, Any]]:
    return [
        {"row": each, "age": age(each.at), "status": word(STATUS, each.status), "own": each.saga_id == saga_id,
         "does": _("left behind by") if each.ended else _("awaited by") if each.waiting else _("held by")}
        for each in rows(alias, "locks", {"saga": saga_id, "limit": limit})
    ]  # fmt: skip
