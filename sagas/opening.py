"""The savepoint of one body in a group of local steps, which costs no round trip of its own.

It is sent with the first statement of the body, after the end of the savepoint before it, where an integration can
add something to a statement; else just before whatever reaches the connection first. A body that sends nothing has
none. Whoever cannot tell whether it was set has lost it, and the group is rolled back and run one by one.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import psycopg
from psycopg import generators
from psycopg.pq import ExecStatus, TransactionStatus

from sagas.errors import SagaError

LOST: Final = "the savepoint of a body was not set, or is gone; the group is rolled back"


class Opening:
    """A savepoint that is not set yet.

    Args:
        connection: in a transaction; nobody else uses it.
        statements: release the savepoint before it, where there is one, and set this one.
    """

    def __init__(self, connection: psycopg.Connection[Any], *statements: str) -> None:
        self._connection, self.statements = connection, statements
        self.sent = False
        self.unsure = False  # whether it was set, although it was sent
        self._theirs = vars(connection).get("wait")  # such as one that measures
        connection.wait = self._wait  # type: ignore[assignment,method-assign] # all that is sent goes through it

    def close(self) -> None:
        """What follows is no longer the body's."""
        if not self.sent:
            self._step_aside()

    def _step_aside(self) -> None:
        if self._theirs is None:
            del self._connection.wait
        else:
            self._connection.wait = self._theirs  # type: ignore[method-assign]

    def take(self) -> str:
        """The statements; whoever takes them sends them first of all, and says by `done` what came of it."""
        self.sent = self.unsure = True
        self._step_aside()
        return ";".join(self.statements)

    def done(self) -> None:
        """They were executed."""
        self.unsure = False

    def failed(self) -> None:
        """What was sent behind them failed; nothing is certain unless it was the server that refused it."""
        self.unsure = self.state != TransactionStatus.INERROR

    def check(self) -> None:
        """See to it that it is there, if it was sent.

        Raises:
            SagaError: nobody knows.
        """
        if self.unsure:
            raise SagaError(LOST)

    @property
    def state(self) -> TransactionStatus:
        """Of the transaction, as the connection has it."""
        return TransactionStatus(self._connection.pgconn.transaction_status)

    def send(self) -> None:
        """Set it now."""
        statements = self.take()
        self._connection.wait(_executed(self._connection, statements))
        self.done()

    def _wait(self, generator: Any, *arguments: Any, **named: Any) -> Any:
        self.send()
        return self._connection.wait(generator, *arguments, **named)


def _executed(connection: psycopg.Connection[Any], sql: str) -> Generator[Any, Any, None]:
    """Execute statements without parameters; a cursor would wait for the lock that its caller holds."""
    connection.pgconn.send_query(sql.encode())
    for result in (yield from generators.execute(connection.pgconn)):
        if result.status != ExecStatus.COMMAND_OK:
            raise SagaError(f"{LOST}: {result.get_error_message()}")
