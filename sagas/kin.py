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

MOST: Final = 16  # parents that are kept


class Kin:
    """Sagas that others look at, each as it was when it started them; what they look at does not change after that.

    Args:
        links: connections to read on.
        payloads: how they are read.
    """

    def __init__(self, links: Links, payloads: Payloads) -> None:
        self._links, self._payloads = links, payloads
        self._known: OrderedDict[UUID, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def knows(self, id: UUID) -> bool:
        """Whether nothing has to be read for it."""
        return id in self._known

    def load(self, id: UUID) -> None:
        """Read it, unless it is known."""
        self._row(id)

    def get(self, id: UUID, hidden: set[str]) -> Delivery:
        """One of them, for looking only.

        Args:
            id: of the saga.
            hidden: where sensitive values that are read are noted.

        Raises:
            SagaNotFound: it is gone.
        """
        row = self._row(id)
        history = {s: e and e.encode() for s, e in zip(row["history_seqs"], row["history"], strict=True)}
        return Delivery(
            id=0, token=0, kind="step", queue="", saga_id=id, name=row["name"], version=row["version"], key=row["key"],
            state=state_of(row), attempt=None, history=history, begun_at=time.monotonic(),
            reader=Reader(facts_of, self._payloads, fetch=partial(self._fetch, id), hidden=hidden),
        )  # fmt: skip

    def _row(self, id: UUID) -> dict[str, Any]:
        with self._lock:
            if id in self._known:
                self._known.move_to_end(id)
                return self._known[id]
        with self._links.use() as connection, Cursor(connection, row_factory=dict_row) as cursor:
            row = cursor.execute(query("sagas.store", "parent"), {"id": id, "large": LARGE}).fetchone()
        if row is None:
            raise SagaNotFound(f"saga {id}, which started this one, is gone; its input cannot be read any more")
        with self._lock:
            self._known[id] = row
            while len(self._known) > MOST:
                self._known.popitem(last=False)
        return row

    def _fetch(self, id: UUID, seq: int) -> bytes:
        with self._links.use() as connection:
            return large.fetch(connection, id, seq)
