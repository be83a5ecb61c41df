"""`SagaInline`: the sagas of a business object on its own page of the admin."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.contrib import admin
from django.contrib.admin.checks import InlineModelAdminChecks
from django.db import models
from django.forms.models import BaseModelFormSet, modelformset_factory
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from sagas_django.admin_base import badge, moment
from sagas_django.models import SagaRow, sagas_of
from sagas_django.operate import current_step
from sagas_django.wording import STATUS, from_now, word


class SagaFormSet(BaseModelFormSet):
    """The newest sagas of one instance. It takes nothing from a request and saves nothing."""

    most = 20
    using: str | None = None  # database alias

    def __init__(
        self, data: Any = None, files: Any = None, *, instance: models.Model | None = None, queryset: Any = None,
        prefix: str | None = None, **_: Any,
    ) -> None:  # fmt: skip
        self.instance = instance
        self.allowed = SagaRow.objects.all() if queryset is None else queryset
        super().__init__(queryset=self._shown, prefix=prefix)
        self.new_objects: list[SagaRow] = []
        self.changed_objects: list[tuple[SagaRow, list[str]]] = []
        self.deleted_objects: list[SagaRow] = []

    @cached_property
    def _found(self) -> list[SagaRow]:
        if self.instance is None or self.instance._state.adding or self.allowed.query.is_empty():
            return []
        return list(sagas_of(self.instance, self.using).defer("headers")[: self.most + 1])

    @property
    def more(self) -> bool:
        """Whether there are older ones that are not shown."""
        return len(self._found) > self.most

    @property
    def _shown(self) -> models.QuerySet[SagaRow]:
        """What was found, as the queryset that a formset wants; it is not asked for again."""
        shown = SagaRow.objects.order_by("-id")
        shown._result_cache = self._found[: self.most]
        return shown

    def get_queryset(self) -> Any:
        return self.queryset

    @classmethod
    def get_default_prefix(cls) -> str:
        return "sagas"

    def is_valid(self) -> bool:
        return True

    def has_changed(self) -> bool:
        return False

    def save(self, commit: bool = True) -> list[Any]:
        return []


class SagaInlineChecks(InlineModelAdminChecks):
    """There is no foreign key to look for: sagas name what they are about."""

    def _check_exclude_of_parent_model(self, obj: Any, parent_model: Any) -> list[Any]:
        return []

    def _check_relation(self, obj: Any, parent_model: Any) -> list[Any]:
        return []


class SagaInline(admin.TabularInline):
    """The sagas that were started with `subject=` the object of the page, newest first, each with a link to its page.

    Put it into `inlines` of any `ModelAdmin`. It is shown to users who may view sagas, costs one query, and changes
    nothing.

    Attributes:
        using: the database alias that the sagas are in; None: see `sagas_of`.
    """

    using: str | None = None
    model = SagaRow
    formset: Any = SagaFormSet
    template = "admin/sagas/inline.html"
    checks_class = SagaInlineChecks
    extra = 0
    max_num = 0
    can_delete = False
    show_change_link = True
    fields = ("shown_status", "shown_step", "shown_started", "shown_change", "shown_reason")
    readonly_fields = fields

    class Media:
        css = {"all": ["sagas_django/admin.css"]}  # noqa: RUF012 - as Django has it

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        made: Any = modelformset_factory(SagaRow, formset=self.formset, fields=(), extra=0, max_num=0)
        made.using = self.using
        return made

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.display(description=_("status"))
    def shown_status(self, saga: SagaRow) -> SafeString:
        return badge("status", saga.status, word(STATUS, saga.status))

    @admin.display(description=_("current step"))
    def shown_step(self, saga: SagaRow) -> str:
        return current_step(saga)

    @admin.display(description=_("started"))
    def shown_started(self, saga: SagaRow) -> SafeString:
        return moment(saga.created_at)

    @admin.display(description=_("last change"))
    def shown_change(self, saga: SagaRow) -> SafeString:
        return moment(saga.updated_at, from_now(saga.updated_at))

    @admin.display(description=_("reason"))
    def shown_reason(self, saga: SagaRow) -> str:
        return str(saga.error)
