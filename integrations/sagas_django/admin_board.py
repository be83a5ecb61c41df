"""The dashboard: what is parked or stuck, what runs, how fast, and who is there to run it."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _

from sagas_django.admin_actions import AskingAdmin
from sagas_django.board import board


class BoardAdmin(AskingAdmin):
    """Has a page about all sagas together."""

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.board_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_board"
        return [path("dashboard/", view, name=name), *super().get_urls()]

    def board_url(self) -> str:
        """The dashboard."""
        return reverse(f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_board")

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return super().changelist_view(request, {**(extra_context or {}), "board_url": self.board_url()})

    def board_view(self, request: HttpRequest) -> HttpResponse:
        """The page; with `?fragment`, only what changes, which the page fetches again and again."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {**board(self.get_queryset(request)), "opts": self.opts}
        request.current_app = self.admin_site.name
        if "fragment" in request.GET:
            answer = TemplateResponse(request, "admin/sagas/sagarow/board_live.html", context)
            answer["Cache-Control"] = "no-store"
            return answer
        context |= {**self.admin_site.each_context(request), "title": _("Dashboard"), "media": self.media}
        return TemplateResponse(request, "admin/sagas/sagarow/board.html", context)
