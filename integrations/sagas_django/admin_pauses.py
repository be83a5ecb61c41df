"""Queues and definitions that are paused as a whole: a page that lists them, pauses and resumes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db import router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from sagas import pauses
from sagas.desk import connected
from sagas.errors import SagaError
from sagas.pauses import Scope
from sagas.registry import registry
from sagas.requests import MAX_REASON
from sagas_django.admin_actions import NO_ECHO, AskingAdmin
from sagas_django.admin_base import names_of
from sagas_django.admin_filters import known_names
from sagas_django.models import SagaRow
from sagas_django.operate import rows
from sagas_django.store import DjangoStore

ASK = ("GET", "HEAD", "POST")
SCOPE = {Scope.QUEUE: gettext_lazy("queue"), Scope.DEFINITION: gettext_lazy("definition")}


class PauseForm(forms.Form):
    """What is to be paused, and why."""

    what = forms.ChoiceField(label=gettext_lazy("What"))
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=MAX_REASON)

    def __init__(self, *given: Any, choices: list[tuple[str, Any]], **named: Any) -> None:
        super().__init__(*given, **named)
        self.fields["what"] = forms.ChoiceField(
            label=self.fields["what"].label, choices=[("", "---------"), *choices], error_messages=NO_ECHO
        )  # fmt: skip


class PausesAdmin(AskingAdmin):
    """Shows what is paused, and lets those who may pause and resume."""

    change_list_template = "admin/sagas/sagarow/change_list.html"

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.pauses_view)
        return [path("pauses/", view, name=f"{self.opts.app_label}_{self.opts.model_name}_pauses"), *super().get_urls()]

    def pauses_url(self) -> str:
        """The page of pauses."""
        return reverse(f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_pauses")

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return super().changelist_view(request, {**(extra_context or {}), "pauses_url": self.pauses_url()})

    def pauses_view(self, request: HttpRequest) -> HttpResponse:
        """GET lists; POST pauses one thing, or resumes one."""
        if request.method not in ASK:
            return HttpResponseNotAllowed(ASK)
        may = self.may_ask(request, "pause")
        if not (self.has_view_permission(request) and (may or request.method != "POST")):
            raise PermissionDenied
        alias = self.get_queryset(request).db
        if request.method != "POST":
            return self._pauses_page(request, alias, PauseForm(choices=_choices(alias)), may)
        form = PauseForm(request.POST, choices=_choices(alias))
        resumed = request.POST.get("resume")
        if resumed is None and not form.is_valid():
            return self._pauses_page(request, alias, form, may)
        try:
            if resumed is None:
                self._pause(request, alias, form.cleaned_data["what"], form.cleaned_data["reason"])
            else:
                self._resume(request, alias, resumed)
        except SagaError as problem:
            self.message_user(request, str(problem), messages.ERROR)
        return HttpResponseRedirect(self.pauses_url())

    def _pauses_page(self, request: HttpRequest, alias: str, form: PauseForm, may: bool) -> HttpResponse:
        found = [
            {"row": each, "scope": SCOPE[Scope(each.kind)], "label": _label(each.name, each.version),
             "address": _address(each.kind, each.name, each.version)}
            for each in rows(alias, "pauses", {})
        ]  # fmt: skip
        context = {
            **self.admin_site.each_context(request), "title": _("Paused queues and definitions"), "opts": self.opts,
            "media": self.media + form.media, "form": form, "may": may, "pauses": found,
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/sagas/sagarow/pauses.html", context)

    def _pause(self, request: HttpRequest, alias: str, what: str, reason: str) -> None:
        scope, name, version = _meant(what)
        said = {"scope": SCOPE[scope], "name": _label(name, version), "reason": reason}
        with _noted(request, what, _("Paused: %(reason)s") % said), connected(DjangoStore(alias)) as wire:
            actor = f"admin:{request.user.get_username()}"
            pauses.pause(wire, scope, name, version=version, actor=actor, reason=reason)
        self.message_user(request, _("Paused: %(scope)s %(name)s") % said, messages.SUCCESS)

    def _resume(self, request: HttpRequest, alias: str, what: str) -> None:
        found = {_address(each.kind, each.name, each.version) for each in rows(alias, "pauses", {})}
        if what not in found:
            self.message_user(request, _("This is not paused any more."), messages.WARNING)
            return
        scope, name, version = _meant(what)
        with _noted(request, what, _("Resumed")), connected(DjangoStore(alias)) as wire:
            pauses.resume(wire, scope, name, version=version)
        said = {"scope": SCOPE[scope], "name": _label(name, version)}
        self.message_user(request, _("Resumed: %(scope)s %(name)s") % said, messages.SUCCESS)


@contextmanager
def _noted(request: HttpRequest, what: str, said: str) -> Iterator[None]:
    """A transaction with an entry in the admin's log, kept if the block ends well."""
    with transaction.atomic(using=router.db_for_write(LogEntry)):
        LogEntry.objects.create(
            user_id=request.user.pk, content_type=ContentType.objects.get_for_model(SagaRow),
            object_repr=what[:200], action_flag=CHANGE, change_message=said,
        )  # fmt: skip
        yield


def _choices(alias: str) -> list[tuple[str, Any]]:
    """What can be paused: the queues and definitions that this process knows, or that have work."""
    definitions = list(registry.definitions())
    queues = {step.queue for each in definitions for step in each.plan.steps} | set(names_of(alias, "queue_names"))
    queues |= {step.undo.queue for each in definitions for step in each.plan.steps if step.undo}
    versions = [(each.saga_name, each.saga_version) for each in definitions]
    return [
        (_("Queue"), [(_address(Scope.QUEUE, name, 0), name) for name in sorted(queues)]),
        (_("Definition"), [(_address(Scope.DEFINITION, name, 0), name) for name in known_names(alias)]),
        (_("One version of a definition"),
         [(_address(Scope.DEFINITION, *each), _label(*each)) for each in versions]),
    ]  # fmt: skip


def _address(kind: str, name: str, version: int) -> str:
    return f"{Scope(kind).value} {version} {name}"


def _meant(address: str) -> tuple[Scope, str, int]:
    kind, version, name = address.split(" ", 2)
    return Scope(kind), name, int(version)


def _label(name: str, version: int) -> str:
    return f"{name}:{version}" if version else name
