"""The sagas that one saga was started by, and those that it started."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from django.db.models import QuerySet

from sagas.plan import Plan
from sagas_django.models import SagaRow
from sagas_django.operate import rows
from sagas_django.wording import STATUS, word

MOST: Final = 50  # children on a page
MOST_HELD: Final = 200  # sagas that keep others waiting
OTHERS: Final = ("child", "line")  # kinds of `held_by.sql` that are about another saga


def family(sagas: QuerySet[Any], saga: SagaRow, plan: Plan | None) -> dict[str, Any]:
    """Parent and newest children, as far as this user may see them; a saga that can have none costs no query.

    Args:
        sagas: those that the user may see.
        saga: the one that is shown.
        plan: its definition.
    """
    parent = sagas.filter(pk=saga.parent).first() if saga.parent else None
    starts = plan is not None and any(getattr(step, "children", None) is not None for step in plan.steps)
    children = list(sagas.filter(parent=saga.pk).order_by("-created_at", "-id")[: MOST + 1]) if starts else []
    return {
        "parent": parent, "parent_word": word(STATUS, parent.status) if parent else "", "more": len(children) > MOST,
        "children": [{"row": child, "word": word(STATUS, child.status)} for child in children[:MOST]],
    }  # fmt: skip


def held_by(sagas: QuerySet[Any], found: Iterable[SagaRow]) -> list[Any]:
    """What keeps sagas waiting that their own rows do not tell: a parked saga that they started, the first in their
    line, that nobody takes their work; in one query for those that have not ended, and one more where there are such.

    Args:
        sagas: those that the user may see.
        found: those that wait.
    """
    ids = [saga.pk for saga in found if saga.finished_at is None and saga.parked_from is None]
    lines = rows(sagas.db, "held_by", {"ids": ids, "limit": MOST_HELD}) if ids else []
    others = {line.id for line in lines if line.kind in OTHERS}
    seen = set(sagas.filter(pk__in=others).values_list("pk", flat=True)) if others else set()
    return [line for line in lines if line.kind not in OTHERS or line.id in seen]
