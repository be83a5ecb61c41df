"""The guard of a connection on which local steps run: bodies do not end the transaction past their session.

It is asked by listeners on the class `Engine`, put there once, when this module is imported: those of single
connections are known by ids, which are used again. They look for a guard on the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from sqlalchemy import Connection, Engine, event

from sagas.endings import ending, outlasts, setting
from sagas.errors import ConfigurationError

if TYPE_CHECKING:
    from sagas_sqlalchemy.held import Held

GUARD: Final = "_sagas_guard"  # attribute of a connection that is ours for the time of a transaction
INSTEAD: Final = "what it writes commits together with its log entry when it returns; to undo it all, raise"


class Guard:
    """Whether the transaction may end now, and what a body did that it must not.

    Attributes:
        open: whether the transaction is ours to end.
        offence: what a body tried that it must not, also where it swallowed the refusal.
        held: what holds savepoints back while a body of a group runs.
        settings: that bodies have made in the session.
        has_set_for_good: whether one of them outlasts the transaction.
    """

    def __init__(self) -> None:
        self.open = False
        self.offence: ConfigurationError | None = None
        self.held: Held | None = None
        self.settings = 0
        self.has_set_for_good = False

    def refuse(self, what: str) -> NoReturn:
        """Note the offence.

        Raises:
            ConfigurationError: always; it says what to do instead.
        """
        self.offence = ConfigurationError(f"a local step must not call {what}: {INSTEAD}")
        raise self.offence

    def check(self, what: str) -> None:
        """Refuse it unless the transaction is ours to end.

        Raises:
            ConfigurationError: a body called it.
        """
        if not self.open:
            self.refuse(what)


def _executes(connection: Connection, _: Any, statement: str, *rest: Any) -> None:
    guard: Guard | None = getattr(connection, GUARD, None)
    if guard is None or guard.open:
        return
    if found := ending(statement):
        guard.refuse(found)
    if found := setting(statement):
        guard.settings += 1
        guard.has_set_for_good |= outlasts(found)


def _commits(connection: Connection) -> None:
    guard: Guard | None = getattr(connection, GUARD, None)
    if guard is not None:
        guard.check("commit() of the connection's transaction")


def _rolls_back(connection: Connection) -> None:
    guard: Guard | None = getattr(connection, GUARD, None)
    if guard is not None:
        guard.check("rollback() of the connection's transaction")


for _name, _heard in (("before_cursor_execute", _executes), ("commit", _commits), ("rollback", _rolls_back)):
    event.listen(Engine, _name, _heard)
