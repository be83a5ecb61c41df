"""Approval in the admin: a form for the signal that a saga waits for, or will wait for."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.translation import gettext as _

from sagas import codec
from sagas.actions import expected_signals
from sagas.errors import NotPossible, SagaError, UnknownSaga
from sagas.operate import bounded
from sagas.operate_asking import signal_waits
from sagas.payloads import shown
from sagas.progress import plan_of, state_of
from sagas.states import StepStatus
from sagas.waits import Wait
from sagas_django.admin_actions import AskingAdmin
from sagas_django.asking import once
from sagas_django.conf import sagas_settings
from sagas_django.models import OutboxRow, SagaRow
from sagas_django.signal_form import SignalForm, form_for

ASK = ("GET", "HEAD", "POST")


def signals_of(saga: SagaRow) -> tuple[str, ...]:
    """The waits of a saga whose signal would still be taken."""
    plan, state = plan_of(saga.name, saga.version), state_of(saga)
    return () if plan is None or state is None else expected_signals(plan, state)


class SignalAdmin(AskingAdmin):
    """Lets those who may send a saga what it waits for."""

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.signal_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_signal"
        return [path("<uuid:saga_id>/signal/<str:step>/", view, name=name), *super().get_urls()]

    def signal_url(self, saga: SagaRow, step: str) -> str:
        """The page with the form of a signal."""
        name = f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_signal"
        return reverse(name, args=[saga.pk, step])

    def buttons(self, request: HttpRequest, saga: SagaRow) -> list[dict[str, Any]]:
        found = super().buttons(request, saga)
        if not self.may_ask(request, "signal"):
            return found
        state = state_of(saga)
        steps = state.steps if state else {}
        waits = {name for name, step in steps.items() if step.status is StepStatus.WAITING}
        does = {True: _("The saga waits for this now."), False: _("The saga will wait for this; it may come early.")}
        return [
            {"label": _("Signal %(step)s") % {"step": step}, "does": does[step in waits],
             "url": self.signal_url(saga, step)}
            for step in signals_of(saga)
        ] + found  # fmt: skip

    def signal_view(self, request: HttpRequest, saga_id: UUID, step: str) -> HttpResponse:
        """GET shows the form; POST sends the signal."""
        if request.method not in ASK:
            return HttpResponseNotAllowed(ASK)
        if not self.may_ask(request, "signal"):
            raise PermissionDenied
        saga = self.one(request, saga_id)
        wait = _wait(saga, step)
        if request.method != "POST":
            return self._signal_page(request, saga, wait, form_for(wait)(initial={"nonce": uuid4()}))
        form = form_for(wait)(request.POST)
        if not form.is_valid():
            return self._signal_page(request, saga, wait, form)
        try:
            new = once(self, request, saga, form.cleaned_data["nonce"], _sending(saga, wait, form))
        except (SagaError, DatabaseError) as problem:
            self.message_user(request, f"{saga}: {problem}".strip(), messages.ERROR)
        else:
            said = _("The signal %(step)s is sent, a worker will apply it: %(saga)s") % {"step": step, "saga": saga}
            again = "" if new else " " + _("(This form was sent before; it counts once.)")
            self.message_user(request, said + again, messages.SUCCESS)
        return HttpResponseRedirect(self.page_of(saga))

    def _signal_page(self, request: HttpRequest, saga: SagaRow, wait: Wait[Any], form: SignalForm) -> HttpResponse:
        problem = _obstacle(saga, wait.name, saga._state.db or "default")
        return self.form_page(
            request, form, title=_("Signal %(step)s") % {"step": wait.name}, submit=_("Send the signal"),
            back=self.page_of(saga), saga=saga, problem=problem,
            texts=[_("What you send is the result of this step: the saga goes on with it. It cannot be taken back."),
                   *([wait.__doc__] if wait.__doc__ and wait.__doc__ != Wait.__doc__ else [])],
        )  # fmt: skip


def _wait(saga: SagaRow, step: str) -> Wait[Any]:
    try:
        return next(each for each in signal_waits(saga.name, saga.version) if each.name == step)
    except (StopIteration, UnknownSaga):
        raise Http404 from None


def _sending(saga: SagaRow, wait: Wait[Any], form: SignalForm) -> Any:
    reason = form.cleaned_data["reason"]

    def send(alias: str, actor: str) -> str:
        now, settings = SagaRow.objects.using(alias).get(pk=saga.pk), sagas_settings()
        if problem := _obstacle(now, wait.name, alias):
            raise NotPossible(problem)
        wait.send(form.value, id=saga.pk, actor=actor, reason=reason, using=alias)
        raw = codec.encode(form.value, declared=wait.result_type, limit=settings.max_payload, what=wait.name)
        value = json.loads(shown(settings.payloads.seal(raw, wait.result_type)))
        said = {"step": wait.name, "value": bounded(value), "reason": reason}
        return _("Sent signal %(step)s %(value)s: %(reason)s") % said

    return send


def _obstacle(saga: SagaRow, step: str, alias: str) -> str:
    """Why a signal would not be taken, or would be one too many; nothing if it is wanted."""
    state = state_of(saga)
    if step not in signals_of(saga):
        return _("the saga does not wait for this signal, and will not")
    if state is not None and step in state.steps and state.steps[step].signals:
        return _("this signal was sent before, and waits until the saga comes to it")
    sent = OutboxRow.objects.using(alias).filter(saga_id=saga.pk, kind="signal", payload__step=step)
    return _("this signal was sent already and waits for a worker to apply it") if sent.exists() else ""
