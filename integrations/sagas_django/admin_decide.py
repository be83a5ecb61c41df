"""Deciding in the admin what became of a step that a saga parked over."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.translation import gettext as _

from sagas import codec
from sagas.actions import OFFERS
from sagas.errors import UnknownSaga
from sagas.events import RESOLUTIONS
from sagas.operate import bounded
from sagas.payloads import shown
from sagas.registry import registry
from sagas.step import Step
from sagas_django.admin_actions import AskForm, AskingAdmin, allowed
from sagas_django.asking import Question, ask_each
from sagas_django.conf import sagas_settings
from sagas_django.models import SagaRow
from sagas_django.signal_form import SignalForm, form_for
from sagas_django.wording import ACTION, DOES, word

ASK = ("GET", "HEAD", "POST")
DONE = "mark_done"


class DecideForm(AskForm):
    """Why, and the saga as it was looked at: a decision does not count once it has moved on."""

    seen = forms.IntegerField(widget=forms.HiddenInput)


class DoneForm(SignalForm):
    """The same, with the result of the step."""

    seen = forms.IntegerField(widget=forms.HiddenInput)


class DecideAdmin(AskingAdmin):
    """Lets those who may say what became of a step."""

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.decide_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_decide"
        return [path("<uuid:saga_id>/decide/<str:kind>/<str:step>/", view, name=name), *super().get_urls()]

    def decide_url(self, saga: SagaRow, kind: str, step: str) -> str:
        """The page with the form of a decision."""
        name = f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_decide"
        return reverse(name, args=[saga.pk, kind, step])

    def buttons(self, request: HttpRequest, saga: SagaRow) -> list[dict[str, Any]]:
        return super().buttons(request, saga) + [
            {"label": f"{word(ACTION, action.name)}: {action.step}", "does": word(DOES, action.does),
             "overrides": True, "url": self.decide_url(saga, action.name, action.step)}
            for action in allowed(saga)
            if action.name in RESOLUTIONS and action.step and self.may_ask(request, action.name)
        ]  # fmt: skip

    def decide_view(self, request: HttpRequest, saga_id: UUID, kind: str, step: str) -> HttpResponse:
        """GET shows the form; POST asks for it."""
        if request.method not in ASK:
            return HttpResponseNotAllowed(ASK)
        if kind not in RESOLUTIONS:
            raise Http404
        if not self.may_ask(request, kind):
            raise PermissionDenied
        saga = self.one(request, saga_id)
        declared = _step(saga, step)
        made: Any = form_for(declared, DoneForm) if kind == DONE else DecideForm
        if request.method != "POST":
            return self._decide_page(request, saga, kind, declared, made(initial=_fresh(saga)))
        form = made(request.POST)
        if not form.is_valid():
            return self._decide_page(request, saga, kind, declared, form)
        given = form.cleaned_data
        question = Question(
            kind=kind, reason=given["reason"], nonce=given["nonce"], step=step, seen=given["seen"],
            result=form.value if kind == DONE else None, note=_shown(declared, form.value) if kind == DONE else "",
        )  # fmt: skip
        self._tell(request, kind, ask_each(self, request, [saga], question), [saga.pk])
        return HttpResponseRedirect(self.page_of(saga))

    def _decide_page(
        self, request: HttpRequest, saga: SagaRow, kind: str, step: Step[Any, Any], form: forms.Form
    ) -> HttpResponse:
        possible = any((action.name, action.step) == (kind, step.name) for action in allowed(saga))
        texts = [_("What you enter is what the step would have returned; later steps and its compensation get it.")]
        return self.form_page(
            request, form, title=f"{word(ACTION, kind)}: {step.name}", submit=word(ACTION, kind),
            back=self.page_of(saga), saga=saga, warning=word(DOES, OFFERS[kind].does),
            problem="" if possible else _("the saga does not wait for somebody to decide this"),
            texts=texts if kind == DONE and "value" in "".join(form.fields) else [],
        )  # fmt: skip


def _fresh(saga: SagaRow) -> dict[str, Any]:
    return {"nonce": uuid4(), "seen": saga.seq}


def _step(saga: SagaRow, name: str) -> Step[Any, Any]:
    try:
        return next(each for each in registry.get(saga.name, saga.version).steps if each.name == name)
    except (StopIteration, UnknownSaga):
        raise Http404 from None


def _shown(step: Step[Any, Any], value: Any) -> str:
    """A result as it may be shown: sensitive fields are masked."""
    settings = sagas_settings()
    raw = codec.encode(value, declared=step.result_type, limit=settings.max_payload, what=step.name)
    return bounded(json.loads(shown(settings.payloads.seal(raw, step.result_type))))
