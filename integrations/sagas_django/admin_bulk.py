"""Many sagas at once: all that fit the filters of the list, or all that are parked with one error."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ALL_VAR, ERROR_FLAG, PAGE_VAR
from django.core.exceptions import SuspiciousOperation
from django.db import connections
from django.http import HttpRequest, QueryDict

from sagas.events import Kind
from sagas.states import Status
from sagas_django.admin_base import NUL
from sagas_django.asking import Asked, Question, ask_each, known_answers
from sagas_django.models import SagaRow
from sagas_outbox.queries import query

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

GROUP: Final = "group:"
FILTERS: Final = "filters:"
NOT_FILTERS: Final = (PAGE_VAR, ALL_VAR, ERROR_FLAG)  # what else a list has in its URL: which page of it was looked at
MOST_FAILED: Final = 10_000  # parked sagas that are looked at for groups
MOST_ENDED: Final = 1_000  # and those that have ended
MOST_GROUPS: Final = 100
CHUNK: Final = 200  # sagas
PATIENCE: Final = 10.0  # seconds that one form may work


def failures(alias: str, tail: str, **given: Any) -> list[dict[str, Any]]:
    """What a query about failed sagas finds.

    Args:
        alias: the database.
        tail: "failures_groups" or "failures_sagas".
        given: its parameters.
    """
    statement = query("sagas_django", "failures") + query("sagas_django", tail)
    with connections[alias].cursor() as cursor:
        cursor.execute(
            statement,
            {
                "most": MOST_FAILED,
                "most_ended": MOST_ENDED,
                "good": Status.COMPLETED.value,
                "kind": Kind.PARKED.value,
                **given,
            },
        )
        columns = [column[0] for column in cursor.description]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def ids_in(
    admin: ModelAdmin[Any], request: HttpRequest, scope: str, limit: int, before: UUID | None = None
) -> list[UUID]:  # fmt: skip
    """The newest sagas of a scope, newest first.

    Args:
        admin: of the sagas.
        request: the user's.
        scope: `group:` and the token of a group of failures, or `filters:` and the filters of the list.
        limit: how many at most.
        before: only older ones than this.
    """
    if NUL in scope or not scope.startswith((GROUP, FILTERS)):
        return []
    if scope.startswith(GROUP):
        alias = admin.get_queryset(request).db
        found = failures(alias, "failures_sagas", token=scope.removeprefix(GROUP), limit=limit, before=before)
        return [each["id"] for each in found]
    seen = copy.copy(request)
    narrowed = QueryDict(scope.removeprefix(FILTERS), mutable=True)
    for name in NOT_FILTERS:
        narrowed.pop(name, None)
    seen.GET = QueryDict(narrowed.urlencode())
    try:
        sagas = admin.get_changelist_instance(seen).get_queryset(seen).order_by("-pk")
    except (IncorrectLookupParameters, SuspiciousOperation):
        return []
    return list((sagas if before is None else sagas.filter(pk__lt=before)).values_list("pk", flat=True)[:limit])


def ask_everything(
    admin: ModelAdmin[Any], request: HttpRequest, scope: str, question: Question
) -> tuple[list[Asked], bool]:
    """Ask the same of all sagas of a scope; returns what came of it, and whether time ran out before the last one.

    Those that need not be asked take no more than a look, so that the next form comes to the rest: what this one has
    asked may fit the filters still.

    Args:
        admin: of the sagas.
        request: the user's; their permission was checked.
        scope: see `ids_in`.
        question: what to ask for.
    """
    asked: list[Asked] = []
    until = time.monotonic() + PATIENCE
    for sagas in _chunks(admin, request, scope):
        if time.monotonic() > until:
            return asked, True
        known = known_answers(sagas[0]._state.db or "default", sagas, question)
        asked += known.values()
        if rest := [saga for saga in sagas if saga.pk not in known]:
            asked += ask_each(admin, request, rest, question)
    return asked, False


def _chunks(admin: ModelAdmin[Any], request: HttpRequest, scope: str) -> Iterator[list[SagaRow]]:
    before: UUID | None = None
    while ids := ids_in(admin, request, scope, CHUNK, before):
        before = ids[-1]
        if sagas := list(admin.get_queryset(request).filter(pk__in=ids).order_by("-pk")):
            yield sagas
