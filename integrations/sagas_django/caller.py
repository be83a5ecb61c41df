"""Django's own connection as the place where a saga is started."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import Any, LiteralString, TypeVar

from asgiref.sync import sync_to_async
from django.db import DEFAULT_DB_ALIAS, Error, connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from sagas.errors import ConfigurationError, InvalidInput
from sagas.ports import Work, drive, not_ready
from sagas.settings import Settings
from sagas_django.conf import sagas_settings
from sagas_django.subjects import subject_of
from sagas_outbox.wake import NOTIFY, Throttle

T = TypeVar("T")

_throttles: defaultdict[str, Throttle] = defaultdict(Throttle)  # by alias


class DjangoCaller:
    """One database alias of the current thread; of Django's thread for sync code, when awaited."""

    blocks = awaits = True

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.name = f"database {alias!r}"

    @property
    def settings(self) -> Settings:
        return sagas_settings()

    @cached_property  # looked up by the thread that does the work
    def connection(self) -> BaseDatabaseWrapper:
        return connections[self.alias]

    def run(self, work: Work[T]) -> T:
        return drive(work, self.fetch)

    async def arun(self, work: Work[T]) -> T:
        found: T = await sync_to_async(self.run, thread_sensitive=True)(work)
        return found

    def fetch(self, sql: LiteralString, argument: str) -> str | None:
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql, [argument])
                row = cursor.fetchone()
        except Error as problem:
            state = getattr(problem.__cause__, "sqlstate", None) or getattr(problem.__cause__, "pgcode", None)
            explained = not_ready(state, self.name, f"run `manage.py migrate --database {self.alias}`", problem)
            if explained is None:
                raise  # as it is: retries look for the driver's error in its __cause__
            raise explained from None
        return None if row is None else row[0]

    def in_transaction(self) -> bool:
        return self.connection.in_atomic_block or not self.connection.get_autocommit()

    def wake_after_commit(self) -> None:
        if self.connection.in_atomic_block or self.connection.get_autocommit():
            transaction.on_commit(self.wake, using=self.alias, robust=True)
        # else the caller commits by hand: Django refuses hooks there, and polling finds the work

    def wake(self) -> None:
        """Tell relays that there is work, outside any transaction."""
        if sagas_settings().wake and not self.in_transaction() and _throttles[self.alias].allows():
            with self.connection.cursor() as cursor:
                cursor.execute(NOTIFY)

    def subject(self, subject: object) -> tuple[str, str] | None:
        if not isinstance(subject, models.Model):
            return None
        if subject.pk is None:
            raise InvalidInput("subject: the instance has no primary key yet; save it first", path="subject")
        return subject_of(subject)


def django_caller(using: Any) -> DjangoCaller | None:
    """The caller for a Django alias, or for no argument at all.

    Raises:
        ConfigurationError: there is no such alias, or it is not Postgres.
    """
    if using is not None and not isinstance(using, str):
        return None
    alias = using or DEFAULT_DB_ALIAS
    if alias not in connections:
        known = ", ".join(sorted(connections))
        raise ConfigurationError(f"using={alias!r}: no such alias in DATABASES; known: {known}")
    if connections[alias].vendor != "postgresql":
        raise ConfigurationError(
            f"using={alias!r}: sagas need Postgres, this alias is {connections[alias].vendor}; "
            f"pass using= the alias of a Postgres database"
        )
    return DjangoCaller(alias)
