"""Doing a step anew, from the admin: which one, and what that means."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from sagas.actions import OFFERS
from sagas_django.admin_actions import NO_ECHO, AskForm, AskingAdmin, allowed
from sagas_django.asking import Question, ask_each
from sagas_django.models import SagaRow
from sagas_django.wording import ACTION, DOES, word

ASK = ("GET", "HEAD", "POST")
REDO = "redo"


class RedoForm(AskForm):
    """Which step, that it is known what that means, and the saga as it was looked at."""

    seen = forms.IntegerField(widget=forms.HiddenInput)
    step = forms.ChoiceField(label=gettext_lazy("Step"))
    sure = forms.BooleanField(label=gettext_lazy("I have made sure: it did not happen, or it may happen twice"))
    field_order = ("nonce", "seen", "step", "sure", "reason")

    def __init__(self, *given: Any, steps: list[str], **named: Any) -> None:
        super().__init__(*given, **named)
        self.fields["step"] = forms.ChoiceField(
            label=self.fields["step"].label,
            choices=[("", "---------"), *((step, step) for step in steps)],
            error_messages=NO_ECHO,
        )
        self.fields["reason"].widget.attrs.pop("autofocus", None)  # the step comes first
        self.order_fields(self.field_order)


class RedoAdmin(AskingAdmin):
    """Lets those who may have a step done anew."""

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.redo_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_redo"
        return [path("<uuid:saga_id>/redo/", view, name=name), *super().get_urls()]

    def buttons(self, request: HttpRequest, saga: SagaRow) -> list[dict[str, Any]]:
        found = super().buttons(request, saga)
        if _steps(saga) and self.may_ask(request, REDO):
            name = f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_redo"
            found.append({
                "label": word(ACTION, REDO), "does": word(DOES, OFFERS[REDO].does), "overrides": True,
                "url": reverse(name, args=[saga.pk]),
            })  # fmt: skip
        return found

    def redo_view(self, request: HttpRequest, saga_id: UUID) -> HttpResponse:
        """GET shows the form; POST asks for it."""
        if request.method not in ASK:
            return HttpResponseNotAllowed(ASK)
        if not self.may_ask(request, REDO):
            raise PermissionDenied
        saga = self.one(request, saga_id)
        if request.method != "POST":
            fresh = {"nonce": uuid4(), "seen": saga.seq}
            return self._redo_page(request, saga, RedoForm(initial=fresh, steps=_steps(saga)))
        form = RedoForm(request.POST, steps=[name for name in (request.POST.get("step"),) if name])
        if not form.is_valid():
            return self._redo_page(request, saga, RedoForm(request.POST, steps=_steps(saga)))
        given = form.cleaned_data
        question = Question(
            kind=REDO, reason=given["reason"], nonce=given["nonce"], step=given["step"], seen=given["seen"]
        )  # fmt: skip
        self._tell(request, REDO, ask_each(self, request, [saga], question), [saga.pk])
        return HttpResponseRedirect(self.page_of(saga))

    def _redo_page(self, request: HttpRequest, saga: SagaRow, form: RedoForm) -> HttpResponse:
        return self.form_page(
            request, form, title=_("Do a step anew"), submit=_("Ask for: %(action)s") % {"action": word(ACTION, REDO)},
            back=self.page_of(saga), saga=saga, warning=word(DOES, OFFERS[REDO].does),
            problem="" if _steps(saga) else _("no step of this saga can be done anew now"),
            texts=[_("Choose this when the other side has forgotten the old key, or when what it did was taken back by "
                     "hand. To go on under the same key, choose Retry instead.")],
        )  # fmt: skip


def _steps(saga: SagaRow) -> list[str]:
    """The steps that may be done anew."""
    return [action.step for action in allowed(saga) if action.name == REDO and action.step]
