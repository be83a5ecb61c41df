"""Filters and search of the admin lists. Each narrows by an index, or stops early."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from sagas.registry import registry
from sagas.states import Status
from sagas_django.admin_base import names_of
from sagas_django.operate import in_status
from sagas_django.wording import STATUS, word

OPEN = "open"
FINISHED = "finished"


class StatusFilter(admin.SimpleListFilter):
    """Sagas in one status, or all that are open, or all that have ended."""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, Any]]:
        groups = [(OPEN, _("All open")), (FINISHED, _("All finished"))]
        return groups + [(status.value, word(STATUS, status).capitalize()) for status in Status]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value in (OPEN, FINISHED):
            return queryset.filter(finished_at__isnull=value == OPEN)
        try:
            return queryset.filter(in_status(Status(value or "")))
        except ValueError:
            return queryset


class NameFilter(admin.SimpleListFilter):
    """Sagas of one definition: those this process knows, and the names that are there."""

    title = _("name")
    parameter_name = "name"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        names = known_names(model_admin.get_queryset(request).db)
        if (asked := request.GET.get(self.parameter_name)) and asked not in names:
            names.append(asked)
        return [(name, name) for name in names]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(name=self.value()) if self.value() else queryset


def known_names(alias: str) -> list[str]:
    """Names of sagas, without a scan: from the registry, and the first hundred that the index has."""
    registered = {definition.saga_name for definition in registry.definitions()}
    return sorted(registered.union(names_of(alias, "saga_names")))


def search_sagas(queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
    """Sagas with exactly this id, key, or name:key. Each is a probe of a unique index."""
    term = term.strip()
    wanted = Q(name__in=known_names(queryset.db), key=term)
    name, colon, key = term.partition(":")
    if colon:
        wanted |= Q(name=name.strip(), key=key.strip())
    if (id := as_uuid(term)) is not None:
        wanted |= Q(id=id)
    return queryset.filter(wanted)


def as_uuid(text: str) -> UUID | None:
    """A saga's id; None when the text is none."""
    try:
        return UUID(text.strip())
    except ValueError:
        return None


class QueueFilter(admin.SimpleListFilter):
    """Outbox rows of one queue."""

    title = _("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(name, name) for name in names_of(model_admin.get_queryset(request).db, "queue_names")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(queue=self.value()) if self.value() else queryset


class HolderFilter(admin.SimpleListFilter):
    """Outbox rows that somebody holds, or nobody."""

    title = _("holder")
    parameter_name = "held"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, Any]]:
        return [("yes", _("held")), ("no", _("held by nobody"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset.filter(holder__isnull=value == "no") if value in ("yes", "no") else queryset
