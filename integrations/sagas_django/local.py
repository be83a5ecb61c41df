"""The open transaction of local steps on a Django connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import psycopg
from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from sagas.endings import ending, outlasts, setting
from sagas.errors import ConfigurationError, SagaError
from sagas.looking import looking, shown_to
from sagas.opening import LOST, Opening

SWALLOWED = (
    "the step returned although a query of its own had failed, so its writes cannot be committed; "
    "let the error out of the step, or wrap the query in atomic()"
)
LEFT_OPEN = "the step left an atomic block open, so its writes cannot be committed; end it inside the step"


class DjangoLocal:
    """An open `atomic` block; local steps run in nested ones."""

    session = None

    def __init__(self, alias: str) -> None:
        self._wrapper = connections[alias]
        self._alias = alias
        self._before: str | None = None  # the savepoint of the body before, not released yet
        self._settings = 0  # that bodies have made in the session
        self.has_set_for_good = False

    @property
    def connection(self) -> psycopg.Connection[Any]:
        raw = self._wrapper.connection
        if not isinstance(raw, psycopg.Connection):
            raise ConfigurationError(
                f"database {self._alias!r} is used through {type(raw).__module__}; workers need psycopg 3: "
                f"pip install 'psycopg[binary]' in the worker's environment"
            )
        return raw

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Nobody ends the transaction past Django meanwhile: that would take along the writes of other bodies."""
        raw: Any = self.connection
        before = raw.cursor_factory
        raw.commit = raw.rollback = _refused
        raw.cursor_factory = looking(before)
        try:
            yield
        finally:
            raw.cursor_factory = before
            for name in ("commit", "rollback"):
                raw.__dict__.pop(name, None)

    @contextmanager
    def _sends_along(self, opening: Opening) -> Iterator[None]:
        """As `execute_wrapper`, which takes away the last one: a body may have added one, and leave it there."""
        wrappers, along = self._wrapper.execute_wrappers, partial(_takes_along, opening)
        wrappers.append(along)
        try:
            yield
        finally:
            if along in wrappers:
                wrappers.remove(along)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        with (
            transaction.atomic(using=self._alias), shown_to(self.connection, self._look_at), _balanced(self._wrapper)
        ):  # fmt: skip
            yield
            if self._wrapper.needs_rollback:
                raise transaction.TransactionManagementError(SWALLOWED)

    @contextmanager
    def joined(self) -> Iterator[None]:
        wrapper = self._wrapper
        wrapper.savepoint_state += 1
        name = f"sagas_x{wrapper.savepoint_state}"
        release = () if self._before is None else (wrapper.ops.savepoint_commit_sql(self._before),)
        opening = Opening(self.connection, *release, wrapper.ops.savepoint_create_sql(name))
        wrapper.savepoint_ids.append(name)
        try:
            with shown_to(self.connection, self._look_at), self._sends_along(opening), _balanced(wrapper):
                yield
            opening.close()
            if wrapper.needs_rollback or opening.state != TransactionStatus.INTRANS:
                raise transaction.TransactionManagementError(SWALLOWED)
            opening.check()
        except BaseException:
            opening.close()
            self._undo(opening, name)
            raise
        finally:
            wrapper.savepoint_ids.pop()
            if opening.sent:
                self._before = name

    def release(self) -> None:
        if self._before is not None:
            self._wrapper.savepoint_commit(self._before)
            self._before = None

    def _undo(self, opening: Opening, name: str) -> None:
        """As the end of a nested `atomic` block does it; raises where it cannot be done."""
        wrapper = self._wrapper
        if wrapper.closed_in_transaction:
            raise SagaError(LOST)
        opening.check()
        wrapper.needs_rollback = False
        if opening.sent:
            try:
                wrapper.savepoint_rollback(name)
            except Error as problem:
                raise SagaError(f"{LOST}: {problem}") from problem
        else:
            wrapper.run_on_commit = [each for each in wrapper.run_on_commit if name not in each[0]]

    def hooks(self) -> int:
        return len(self._wrapper.run_on_commit) + self._settings

    def _look_at(self, sql: str) -> None:
        """Django refuses `commit()` in a body. By SQL it would take along the writes of those who share the
        transaction."""
        if found := ending(sql):
            raise ConfigurationError(
                f"a local step must not run {found!r}: what it writes commits together with its "
                f"log entry when it returns; to undo it all, raise"
            )
        if found := setting(sql):
            self._settings += 1
            self.has_set_for_good |= outlasts(found)


def _refused() -> NoReturn:
    raise ConfigurationError(
        "a local step must not call commit() or rollback() of its connection: what it writes commits together with "
        "its log entry when it returns; to undo it all, raise"
    )


def _takes_along(opening: Opening, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
    """Send the savepoint of a body together with its first statement, where the cursor can do that."""
    cursor = context["cursor"].cursor
    if (
        opening.sent
        or many
        or not isinstance(sql, str)
        or not sql.strip()
        or not _sends_as_is(context["connection"], cursor, opening)
    ):
        return execute(sql, params, many, context)  # psycopg calls the opening before it sends anything
    before = opening.take()
    try:
        found = execute(f"{before};\n{sql}", params, many, context)
    except BaseException:
        opening.failed()
        raise
    for _ in opening.statements:
        cursor.nextset()
    opening.done()
    return found


def _sends_as_is(wrapper: BaseDatabaseWrapper, cursor: Any, opening: Opening) -> bool:
    """Whether a cursor may send several statements, and no wrapper of the body's own comes to see what we add."""
    last: Any = wrapper.execute_wrappers[-1]
    return isinstance(cursor, psycopg.ClientCursor) and isinstance(last, partial) and last.args == (opening,)


@contextmanager
def _balanced(wrapper: BaseDatabaseWrapper) -> Iterator[None]:
    """A local step ends the `atomic` blocks that it begins: the end of ours would be taken for the end of one of them.

    Raises:
        TransactionManagementError: it left one open.
    """
    ids, blocks = [*wrapper.savepoint_ids], [*wrapper.atomic_blocks]
    try:
        yield
    finally:
        left = len(wrapper.atomic_blocks) > len(blocks)
        if left:
            wrapper.savepoint_ids[:], wrapper.atomic_blocks[:] = ids, blocks
    if left:
        raise transaction.TransactionManagementError(LEFT_OPEN)
