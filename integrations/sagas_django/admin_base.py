"""What the admin pages of sagas share: they only look, and they stay quick however much there is to look at."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import connections
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from sagas_django.wording import clock, zone
from sagas_outbox.queries import query

MOST_COUNTED: Final = 2_000  # rows; a list does not count or page any further
MOST_NAMES: Final = 100  # choices of a filter
NUL: Final = "\x00"  # no text in Postgres has one, and to ask for one is an error
MOST_TOLD: Final = 100  # characters of what a URL asked for
LOOKUPS: Final = ("exact", "in", "isnull", "gt", "gte", "lt", "lte")  # that a URL may narrow by; others scan or fail


class BoundedPaginator(Paginator):
    """Counts up to `MOST_COUNTED` rows: counting millions takes longer than showing a hundred."""

    @cached_property
    def count(self) -> int:
        """Rows that fit, or one more than `MOST_COUNTED` when there are more."""
        rows: Any = self.object_list
        number: int = rows.order_by()[: MOST_COUNTED + 1].count()
        return number

    @property
    def capped(self) -> bool:
        """Whether there are more rows than were counted."""
        return self.count > MOST_COUNTED


class ReadOnlyAdmin(admin.ModelAdmin):
    """Shows rows and changes none: a saga changes through the engine.

    Every column is a method, so that no click sorts a big table by a column without an index.
    """

    actions: Any = None
    change_list_template = "admin/sagas/change_list.html"
    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # they count once for each choice
    list_per_page = 50
    list_max_show_all = 0

    class Media:
        css = {"all": ["sagas_django/admin.css"]}  # noqa: RUF012 - as Django has it

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: str, request: Any = None) -> bool:
        _field, _mark, how = lookup.partition("__")
        return how in ("", *LOOKUPS) and bool(super().lookup_allowed(lookup, value, request))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        return None if NUL in object_id else super().get_object(request, object_id, from_field)

    def response_action(self, request: HttpRequest, queryset: Any, *more: Any, **named: Any) -> Any:
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if all(self._may_be_id(text) for text in chosen):
            return super().response_action(request, queryset, *more, **named)
        self.message_user(request, _("What was chosen is no row of this list; nothing was done."), messages.ERROR)
        return None

    def _may_be_id(self, text: str) -> bool:
        try:
            self.opts.pk.run_validators(self.opts.pk.to_python(text))
        except (ValidationError, ValueError):
            return False
        return NUL not in text

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        try:
            if any(NUL in value for _name, found in request.GET.lists() for value in found):
                raise IncorrectLookupParameters("NUL")
            return super().get_changelist_instance(request)
        except IncorrectLookupParameters:  # Django leads to the whole list, without a word
            names = ", ".join(request.GET)[:MOST_TOLD]
            self.message_user(request, _("The list cannot be narrowed this way: %(names)s") % {"names": names},
                              messages.WARNING)  # fmt: skip
            raise


def names_of(alias: str, name: str) -> list[str]:
    """The first distinct values of an indexed column, by a named query that probes the index for each."""
    with connections[alias].cursor() as cursor:
        cursor.execute(query("sagas_django", name), {"limit": MOST_NAMES})
        return [value for (value,) in cursor.fetchall()]


def moment(value: Any, text: str | None = None) -> SafeString:
    """A moment as a `<time>` element: `text`, or date and time, with the exact moment in its title."""
    exact = clock(value)
    return format_html(
        '<time datetime="{}" title="{} {}">{}</time>', value.isoformat(), exact, zone(), text or exact[:19]
    )


def badge(kind: str, value: str, text: str) -> SafeString:
    """A word that a colour helps to find; the word itself says everything."""
    return format_html('<span class="sagas-badge sagas-{}-{}">{}</span>', kind, value, text)
