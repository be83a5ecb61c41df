"""The sagas that one saga was started by, and those that it started."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import QuerySet

from sagas.plan import Plan
from sagas_django.models import SagaRow
from sagas_django.operate import rows
from sagas_django.wording import STATUS, word

MOST: Final = 50  # children on a page


def family(sagas: QuerySet[Any], saga: SagaRow, plan: Plan | None) -> dict[str, Any]:
    """Parent and newest children, as far as this user may see them; a saga that can have none costs no query.

    Args:
        sagas: those that the user may see.
        saga: the one that is shown.
        plan: its definition.
    """
    parent = sagas.filter(pk=saga.parent).first() if saga.parent else None
    starts = plan is not None and any(getattr(step, "children", None) is not None for step in plan.steps)
    children = list(sagas.filter(parent=saga.pk).order_by("-id")[: MOST + 1]) if starts else []
    return {
        "parent": parent, "parent_word": word(STATUS, parent.status) if parent else "", "more": len(children) > MOST,
        "children": [{"row": child, "word": word(STATUS, child.status)} for child in children[:MOST]],
    }  # fmt: skip


def kin(alias: str, saga: SagaRow) -> list[Any]:
    """What keeps a saga waiting may be a child of it; nothing is asked for where it waits for none."""
    waits = isinstance(saga.steps, dict) and any(
        isinstance(step, dict) and step.get("started") for step in saga.steps.values()
    )
    return rows(alias, "operate_family", {"saga": saga.pk, "limit": MOST}) if waits else []
