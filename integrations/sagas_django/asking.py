"""Requests on behalf of a user of the admin: each saga in a transaction of its own, with its admin log entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.contrib.admin.models import LogEntry
from django.db import DatabaseError, router, transaction
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from sagas import engine, ports
from sagas.actions import OFFERS, changes_something
from sagas.errors import NotPossible, SagaError, UnknownSaga
from sagas.once import first_time, key_of
from sagas.progress import state_of
from sagas.registry import registry
from sagas_django.models import DedupeRecord, OutboxRow, SagaRow
from sagas_django.wording import ACTION, STATUS, word

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

ASKED_ALREADY: Final = gettext_lazy("this was asked for already and waits for a worker to apply it")


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is asked for, and why."""

    kind: str  # of the request
    reason: str
    nonce: UUID  # of the form
    step: str = ""  # that it is about, where it is about one
    result: Any = None  # of a step that is marked as done
    seen: int | None = None  # seq of the saga as it was looked at
    note: str = ""  # for the admin's log


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What came of asking one saga."""

    label: str
    problem: str = ""  # why nothing was inserted
    repeated: bool = False  # the same form had been sent before


def ask_each(
    admin: ModelAdmin[Any], request: HttpRequest, sagas: Iterable[SagaRow], question: Question
) -> list[Asked]:  # fmt: skip
    """Ask the same of several sagas; what is not possible for one does not stop the others.

    Args:
        admin: writes the admin log entries.
        request: the user's; their permission was checked.
        sagas: on the database that the admin shows.
        question: what to ask for.
    """
    asked = []
    for saga in sagas:
        try:
            asked.append(Asked(label=str(saga), repeated=not _ask(admin, request, saga, question)))
        except (SagaError, DatabaseError) as problem:
            asked.append(Asked(label=str(saga), problem=str(problem).strip()))
    return asked


def known_answers(alias: str, sagas: Sequence[SagaRow], question: Question) -> dict[UUID, Asked]:
    """What would come of asking, by saga, for those of which that is plain without a transaction for each.

    Args:
        alias: their database.
        sagas: as they were just read.
        question: what to ask for.
    """
    keys = {key_of(saga.pk, question.nonce): saga.pk for saga in sagas}
    sent = {keys[each.key] for each in DedupeRecord.objects.using(alias).filter(key__in=keys).only("key")}
    waiting = _waiting(alias, [saga.pk for saga in sagas], question)
    found: dict[UUID, Asked] = {}
    for saga in sagas:
        if saga.pk in sent:
            found[saga.pk] = Asked(label=str(saga), repeated=True)
        elif problem := _useless(saga, question) or (ASKED_ALREADY if saga.pk in waiting else ""):
            found[saga.pk] = Asked(label=str(saga), problem=str(problem))
    return found


def _useless(saga: SagaRow, question: Question) -> str:
    """Why a saga as it was read has nothing to gain from it; empty where only the engine can tell."""
    try:
        plan, state = registry.get(saga.name, saga.version).plan, state_of(saga)
    except UnknownSaga as problem:
        return str(problem)
    if state is None or changes_something(plan, state, OFFERS[question.kind].event(question.step)):
        return ""
    return _changes_nothing(saga.status)


def once(
    admin: ModelAdmin[Any], request: HttpRequest, saga: SagaRow, nonce: UUID, act: Callable[[str, str], str]
) -> bool:
    """Do something and note it in the admin's log, together; returns whether this form had not been sent before.

    Where the admin's log is in another database that one commits last: a request may lack its entry there, and its
    reason and actor are in the saga's log all the same.

    Args:
        admin: writes the admin log entry.
        request: the user's; their permission was checked.
        saga: on the database that the admin shows.
        nonce: of the form.
        act: does it, given the database alias and who asks; returns what the admin's log says.
    """
    alias = saga._state.db or router.db_for_read(SagaRow)
    with transaction.atomic(using=router.db_for_write(LogEntry)), transaction.atomic(using=alias):
        if not ports.caller(alias, call="request").run(first_time(saga.pk, nonce)):
            return False
        admin.log_change(request, saga, act(alias, f"admin:{request.user.get_username()}"))
    return True


def _ask(admin: ModelAdmin[Any], request: HttpRequest, saga: SagaRow, question: Question) -> bool:
    """Insert the request and both log entries together; returns whether this form had not been sent before.

    Raises:
        NotPossible: nothing would come of it now, or the same is waiting to be applied.
    """

    def act(alias: str, actor: str) -> str:
        _check(saga, alias, question)
        engine.request(
            None, question.kind, id=saga.pk, reason=question.reason, actor=actor, step=question.step,
            result=question.result, seen=question.seen, using=alias,
        )  # fmt: skip
        action = " ".join(filter(None, (word(ACTION, question.kind), question.step, question.note)))
        return _("Asked for %(action)s: %(reason)s") % {"action": action, "reason": question.reason}

    return once(admin, request, saga, question.nonce, act)


def _check(saga: SagaRow, alias: str, question: Question) -> None:
    now = engine.find(None, id=saga.pk, using=alias)
    if (question.kind, question.step or None) not in [(action.name, action.step) for action in now.allowed_actions]:
        raise NotPossible(_changes_nothing(now.status))
    if question.seen is not None and question.seen != now.seq:
        raise NotPossible(_("it has moved on since you looked at it: look again, and decide anew"))
    if _waiting(alias, [saga.pk], question):
        raise NotPossible(str(ASKED_ALREADY))


def _waiting(alias: str, ids: Iterable[UUID], question: Question) -> set[UUID]:
    """Of which sagas the same waits to be applied."""
    asked = OutboxRow.objects.using(alias).filter(saga_id__in=ids, kind=question.kind)
    return set(asked.values_list("saga_id", flat=True))


def _changes_nothing(status: str) -> str:
    return _("it is %(status)s by now, this would change nothing") % {"status": word(STATUS, status)}
