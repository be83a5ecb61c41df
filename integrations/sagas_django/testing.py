"""The connection of a Django test as a store of sagas, also inside the transaction of `TestCase`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from psycopg.pq import TransactionStatus

from sagas.testing.borrowed import lend, sheltered
from sagas_django.local import DjangoLocal
from sagas_django.store import DjangoStore, local_on, note_open


class BorrowedDjangoStore(DjangoStore):
    """One alias, on the connection of the current thread."""

    def connect(self) -> psycopg.Connection[Any]:
        connections[self.name].ensure_connection()
        return lend(DjangoLocal(self.name).connection)

    @contextmanager
    def local(self) -> Iterator[DjangoLocal]:
        with transaction.atomic(using=self.name), local_on(connections[self.name]):
            yield DjangoLocal(self.name)

    def between(self) -> None:
        """The connection is the test's: whether it is stale is not ours to say."""
        note_open()

    @contextmanager
    def shelter(self) -> Iterator[None]:
        wrapper = connections[self.name]
        raw, marked = DjangoLocal(self.name).connection, wrapper.needs_rollback
        with sheltered(raw):
            yield
            failed = raw.info.transaction_status == TransactionStatus.INERROR
        if failed and not marked:
            wrapper.needs_rollback = False  # Django noted the failed statement, which the savepoint has undone


def borrow(using: Any) -> BorrowedDjangoStore:
    """The store of an alias; None: the default one.

    Raises:
        ConfigurationError: the alias is used through psycopg 2.
    """
    store = BorrowedDjangoStore(using or DEFAULT_DB_ALIAS)
    store.connect()
    return store
