"""Asking for something in the admin: retry, cancel, abort and the like, of one saga or of many.

Every request goes through the engine. A GET shows what would happen, with a form; its POST inserts the requests, each
with its log entries in one transaction. The form's nonce is an idempotency key, so that sending it twice asks once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID, uuid4

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.widgets import AdminTextareaWidget
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from sagas.actions import OFFERS, Action, allowed_actions
from sagas.events import ABOUT_A_STEP
from sagas.progress import plan_of, state_of
from sagas.requests import MAX_REASON
from sagas_django.admin_base import ReadOnlyAdmin
from sagas_django.admin_bulk import FILTERS, GROUP, ask_everything, ids_in
from sagas_django.admin_filters import as_uuid
from sagas_django.asking import Asked, Question, ask_each
from sagas_django.models import SagaRow
from sagas_django.wording import ACTION, DOES, STATUS, word

KINDS: Final = tuple(kind for kind in ACTION if kind not in ABOUT_A_STEP)  # what needs a reason and no more
MOST_AT_ONCE: Final = 500  # sagas; each is a transaction, and a field of the form
MOST_LISTED: Final = 20  # sagas named in a message
NO_ECHO: Final = {  # what was sent may be of any length
    "invalid_choice": forms.ModelChoiceField.default_error_messages["invalid_choice"]
}


class AskForm(forms.Form):
    """Why, and the nonce of this form."""

    nonce = forms.UUIDField(widget=forms.HiddenInput)
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=MAX_REASON,
        widget=AdminTextareaWidget(attrs={"rows": 3, "autofocus": True}),
        help_text=gettext_lazy("Kept in the saga's log, with your name."),
    )

    def clean(self) -> dict[str, Any] | None:
        """Complain where it is seen about what nobody sees, and let the form be sent again."""
        data = super().clean()
        wrong = [field.name for field in self.hidden_fields() if field.errors]
        if wrong:
            said = _("This page was out of date or incomplete (%(fields)s). Nothing was asked for.")
            self.add_error(None, said % {"fields": ", ".join(wrong)})
        if "nonce" in wrong:
            self.data: Any = {**self.data, "nonce": str(uuid4())}
        return data


def allowed(saga: SagaRow) -> tuple[Action, ...]:
    """What may be asked of a saga; nothing where this process does not know its definition or cannot read its row."""
    plan, state = plan_of(saga.name, saga.version), state_of(saga)
    return () if plan is None or state is None else allowed_actions(plan, state)


def _list_action(kind: str) -> Callable[..., HttpResponse | None]:
    """The entry of the list's menu: it leads to the page that asks for the reason."""

    @admin.action(permissions=[kind], description=format_lazy("{}: {}", gettext_lazy("Ask for"), ACTION[kind]))
    def choose(self: AskingAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        ids = list(queryset.order_by("-pk").values_list("pk", flat=True)[: MOST_AT_ONCE + 1])
        if len(ids) <= MOST_AT_ONCE:
            return self.confirmation(request, kind, ids)
        return self.confirmation(request, kind, ids[:MOST_AT_ONCE], scope=FILTERS + request.GET.urlencode())

    choose.__name__ = f"{kind}_sagas"
    return choose


class AskingAdmin(ReadOnlyAdmin):
    """Shows rows, and lets those who may ask for what is possible now."""

    actions = tuple(_list_action(kind) for kind in KINDS)

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return self.may_ask(request, "retry")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return self.may_ask(request, "cancel")

    def has_abort_permission(self, request: HttpRequest) -> bool:
        return self.may_ask(request, "abort")

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return self.may_ask(request, "pause")

    def has_resume_permission(self, request: HttpRequest) -> bool:
        return self.may_ask(request, "resume")

    def one(self, request: HttpRequest, id: UUID) -> SagaRow:
        """One saga that this user may see.

        Raises:
            Http404: there is no such saga.
        """
        found: SagaRow | None = self.get_queryset(request).filter(pk=id).first()
        if found is None:
            raise Http404
        return found

    def form_page(
        self, request: HttpRequest, form: forms.Form, *, title: str, submit: str, back: str, **more: Any
    ) -> TemplateResponse:
        """A page with one form about one saga.

        Args:
            request: the user's.
            form: with a nonce; the other fields are shown.
            title: of the page.
            submit: what the button says.
            back: where "Back" leads.
            more: for the template: `texts` above the form, `warning`, `saga`.
        """
        context = {
            **self.admin_site.each_context(request), "title": title, "opts": self.opts,
            "media": self.media + form.media, "form": form, "submit": submit, "back_url": back, **more,
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/sagas/sagarow/form.html", context)

    def page_of(self, saga: SagaRow) -> str:
        """The page of a saga."""
        return reverse(f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_change", args=[saga.pk])

    def may_ask(self, request: HttpRequest, kind: str) -> bool:
        """Whether this user may ask for it: they need the permission to look as well."""
        user: Any = request.user
        permission = f"{SagaRow._meta.app_label}.{kind}_saga"
        return self.has_view_permission(request) and bool(user.has_perm(permission))

    def get_urls(self) -> list[Any]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_ask"
        return [path("ask/<str:kind>/", self.admin_site.admin_view(self.ask_view), name=name), *super().get_urls()]

    def ask_url(self, kind: str) -> str:
        """The page that asks for the reason."""
        name = f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_ask"
        return reverse(name, args=[kind])

    def buttons(self, request: HttpRequest, saga: SagaRow) -> list[dict[str, Any]]:
        """What this user may ask of this saga now."""
        return [
            {"label": word(ACTION, action.name), "does": word(DOES, action.does), "overrides": action.overrides,
             "url": f"{self.ask_url(action.name)}?saga={saga.pk}"}
            for action in allowed(saga)
            if action.name in KINDS and self.may_ask(request, action.name)
        ]  # fmt: skip

    def ask_view(self, request: HttpRequest, kind: str) -> HttpResponse:
        """GET shows what would happen; POST asks for it."""
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        if kind not in KINDS:
            raise Http404
        if not self.may_ask(request, kind):
            raise PermissionDenied
        given = request.POST if request.method == "POST" else request.GET
        if request.method != "POST" and (group := given.get("group")):
            return self._group_page(request, kind, GROUP + group)
        found = (as_uuid(each) for each in dict.fromkeys(given.getlist("saga")))
        ids = [id for id in found if id is not None]
        if not 0 < len(ids) <= MOST_AT_ONCE:
            self.message_user(request, _too_many() if ids else _("No saga was chosen."), messages.ERROR)
            return HttpResponseRedirect(self._back(request, []))
        if request.method != "POST":
            return self.confirmation(request, kind, ids)
        form = AskForm(request.POST)
        if not form.is_valid():
            return self.confirmation(request, kind, ids, form)
        question = Question(kind=kind, reason=form.cleaned_data["reason"], nonce=form.cleaned_data["nonce"])
        if "everything" in given and (scope := given.get("scope")):
            self._tell_everything(request, kind, *ask_everything(self, request, scope, question))
            return HttpResponseRedirect(self._back(request, []))
        self._tell(request, kind, ask_each(self, request, self._chosen(request, ids), question), ids)
        return HttpResponseRedirect(self._back(request, ids))

    def _group_page(self, request: HttpRequest, kind: str, scope: str) -> HttpResponse:
        """The same for sagas that are parked with one error."""
        ids = ids_in(self, request, scope, MOST_AT_ONCE + 1)
        if not ids:
            self.message_user(request, _("No saga is parked with this error any more."), messages.WARNING)
            return HttpResponseRedirect(self._back(request, []))
        return self.confirmation(request, kind, ids[:MOST_AT_ONCE], scope=scope if len(ids) > MOST_AT_ONCE else "")

    def _tell_everything(self, request: HttpRequest, kind: str, asked: list[Asked], more: bool) -> None:
        self._tell(request, kind, asked, [UUID(int=0)] * len(asked))
        if not asked:
            self.message_user(request, _("No saga fits any more; nothing was asked for."), messages.WARNING)
        if more:
            text = _("There are more: time ran out. Ask again for the rest; nothing is asked for twice.")
            self.message_user(request, text, messages.WARNING)

    def confirmation(
        self, request: HttpRequest, kind: str, ids: list[UUID], form: AskForm | None = None, *, scope: str = ""
    ) -> TemplateResponse:
        """The page that says what will happen to each saga, and asks for the reason; there may be more in a scope."""
        if form is None:
            form = AskForm(initial={"nonce": uuid4()})
        rows = [self._row(kind, saga) for saga in self._chosen(request, ids)]
        scope = scope or request.POST.get("scope", "")
        context = {
            **self.admin_site.each_context(request),
            "title": _("Ask for: %(action)s") % {"action": word(ACTION, kind)},
            "opts": self.opts,
            "media": self.media + form.media,
            "form": form,
            "kind": kind,
            "label": word(ACTION, kind),
            "overrides": OFFERS[kind].overrides,
            "rows": rows,
            "possible": bool(scope) or any(row["does"] for row in rows),  # those that are not listed may allow it
            "scope": scope,
            "ask_url": self._with_filters(request, self.ask_url(kind)),
            "back_url": self._back(request, ids),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/sagas/sagarow/ask.html", context)

    def _chosen(self, request: HttpRequest, ids: list[UUID]) -> list[SagaRow]:
        """Those of the sagas that this user may see, on the database that the admin shows."""
        return list(self.get_queryset(request).filter(pk__in=ids).order_by("-pk"))

    def _row(self, kind: str, saga: SagaRow) -> dict[str, Any]:
        does = next((action.does for action in allowed(saga) if action.name == kind), None)
        return {"saga": saga, "status": word(STATUS, saga.status), "does": does and word(DOES, does)}

    def _back(self, request: HttpRequest, ids: list[UUID]) -> str:
        """The page of the one saga, or the list as it was filtered."""
        base = f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}"
        url = reverse(f"{base}_change", args=ids) if len(ids) == 1 else reverse(f"{base}_changelist")
        return self._with_filters(request, url)

    def _with_filters(self, request: HttpRequest, url: str) -> str:
        """The URL with what the list was narrowed to."""
        filters: dict[str, Any] = {"preserved_filters": self.get_preserved_filters(request), "opts": self.opts}
        return str(add_preserved_filters(filters, url))

    def _tell(self, request: HttpRequest, kind: str, asked: list[Asked], ids: list[UUID]) -> None:
        """What was done, what was not, and why not."""
        done = [each for each in asked if not each.problem]
        if done:
            text = ngettext(
                "%(action)s is asked for, a worker will apply it: %(sagas)s",
                "%(action)s is asked for of %(count)d sagas, workers will apply it: %(sagas)s",
                len(done),
            ) % {"action": word(ACTION, kind), "count": len(done), "sagas": _listed(each.label for each in done)}
            if any(each.repeated for each in done):
                text += " " + _("(This form was sent before; it counts once.)")
            self.message_user(request, text, messages.SUCCESS)
        not_done = [f"{each.label}: {each.problem}" for each in asked if each.problem]
        if len(asked) < len(ids):
            not_done.append(_("%(count)d not found") % {"count": len(ids) - len(asked)})
        if not_done:
            text = _("Not asked for %(action)s: %(sagas)s")
            self.message_user(
                request, text % {"action": word(ACTION, kind), "sagas": _listed(not_done, "; ")}, messages.WARNING
            )


def _listed(texts: Iterable[str], separator: str = ", ") -> str:
    found = list(texts)
    more = len(found) - MOST_LISTED
    return separator.join(found[:MOST_LISTED]) + (_(", and %(more)d more") % {"more": more} if more > 0 else "")


def _too_many() -> str:
    return _("At most %(most)d sagas at once: narrow the list with filters.") % {"most": MOST_AT_ONCE}
