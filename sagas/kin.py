"""What the body of an item may know of the saga that started it: read once for all items that a process works on."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from functools import partial
from typing import Any, Final
from uuid import UUID

from psycopg import Cursor
from psycopg.rows import dict_row

from sagas.errors import SagaNotFound
from sagas.payloads import LARGE, Payloads
from sagas.reader import Reader
from sagas.store import large
from sagas.store.rows import Delivery, facts_of, state_of
from sagas_outbox.link import Links
from sagas_outbox.queries import query

MOST: Final = 16  # of them that are kept


class Kin:
    """Sagas that others look at, each as it was when one of its steps had started them; what came before that step does
    not change after that, unless it is redone, which makes it another generation of the step.

    Args:
        links: connections to read on.
        payloads: how they are read.
    """

    def __init__(self, links: Links, payloads: Payloads) -> None:
        self._links, self._payloads = links, payloads
        self._known: OrderedDict[tuple[UUID, str], dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def knows(self, id: UUID, branch: str) -> bool:
        """Whether nothing has to be read for it."""
        return (id, branch) in self._known

    def load(self, id: UUID, branch: str) -> None:
        """Read it, unless it is known."""
        self._row(id, branch)

    def get(self, id: UUID, branch: str, hidden: set[str]) -> Delivery:
        """One of them, for looking only.

        Args:
            id: of the saga.
            branch: the step, and the generation of it, that has started who looks.
            hidden: where sensitive values that are read are noted.

        Raises:
            SagaNotFound: it is gone.
        """
        row = self._row(id, branch)
        history = {s: e and e.encode() for s, e in zip(row["history_seqs"], row["history"], strict=True)}
        return Delivery(
            id=0, token=0, kind="step", queue="", saga_id=id, name=row["name"], version=row["version"], key=row["key"],
            state=state_of(row), attempt=None, history=history, begun_at=time.monotonic(),
            reader=Reader(facts_of, self._payloads, fetch=partial(self._fetch, id), hidden=hidden),
        )  # fmt: skip

    def _row(self, id: UUID, branch: str) -> dict[str, Any]:
        wanted = (id, branch)
        with self._lock:
            if wanted in self._known:
                self._known.move_to_end(wanted)
                return self._known[wanted]
        with self._links.use() as connection, Cursor(connection, row_factory=dict_row) as cursor:
            row = cursor.execute(query("sagas.store", "parent"), {"id": id, "large": LARGE}).fetchone()
        if row is None:
            raise SagaNotFound(f"saga {id}, which started this one, is gone; its input cannot be read any more")
        with self._lock:
            self._known[wanted] = row
            while len(self._known) > MOST:
                self._known.popitem(last=False)
        return row

    def _fetch(self, id: UUID, seq: int) -> bytes:
        with self._links.use() as connection:
            return large.fetch(connection, id, seq)
