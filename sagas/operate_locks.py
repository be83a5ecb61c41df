"""Semantic locks on the command line: who holds what, who waits for it, and freeing what was left behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from sagas import locking
from sagas.desk import Desk
from sagas.errors import InvalidInput
from sagas.operate import one_line, table
from sagas.operate_asking import user

HEAD = ("subject", "", "since", "by step", "status", "saga", "name", "key")
MOST = 1000  # lines


def listing(desk: Desk, limit: int = MOST) -> Iterator[str]:
    """Every semantic lock, and under it the sagas that wait for it, longest first.

    Raises:
        InvalidInput: a limit below 1.
        StoreNotReady: the database cannot be reached, or lacks our tables.
    """
    desk.check_ready()
    if limit < 1:
        raise InvalidInput(f"--limit {limit}: at least 1", path="limit")
    found = lines(desk, limit=limit)
    if not found:
        yield f"no semantic lock is held in {desk.name!r}"
        return
    words = desk.words
    yield from table(
        [HEAD]
        + [
            (one_line(each.subject), told(each), words.age(each.at), each.step, words.word(words.STATUS, each.status),
             str(each.saga_id), each.name or "?", one_line(each.key or "?"))
            for each in found
        ]
    )  # fmt: skip
    if any(each.waiting for each in found):
        yield f"a lock is free when its holder has ended; `{desk.command} show ID` says why that one does not go on"
    if any(each.ended for each in found):
        yield f"`{desk.command} unlock SUBJECT --reason WHY` frees what a saga that has ended left behind"


def lines(desk: Desk, *, saga: UUID | None = None, limit: int = MOST) -> Sequence[Any]:
    """Semantic locks as they are stored; of one saga those that it holds or waits for, with whoever is concerned."""
    return desk.rows("locks", {"saga": saga, "limit": limit})


def told(line: Any) -> str:
    """What a saga has to do with a subject."""
    if line.ended:
        return "left behind by"
    return "awaited by" if line.waiting else "held by"


def unlock(desk: Desk, subject: str, *, reason: str, actor: str = "") -> tuple[UUID, str]:
    """Free a subject whose saga has ended or is gone; returns the saga that had left it behind, and that in words.

    Raises:
        InvalidInput: no reason, or no subject.
        NotPossible: nobody holds it, or a saga that has not ended.
    """
    if not reason.strip():
        raise InvalidInput("--reason: say why, for those who look for it later", path="reason")
    with desk.connect() as connection:
        freed = locking.release(connection, subject, actor=actor or user(), reason=reason)
    return freed.saga_id, f"semantic lock {subject} is free; saga {freed.saga_id}, which has ended, had left it behind"
