"""The inbox: a message is taken in the transaction of its handler's own writes, so that it counts exactly once.

The line that says "taken" commits with what the handler wrote, or not at all. Whoever gets the message again, hours
later or at the same moment, finds the line and does nothing. Integrations wrap this into decorators.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from sagas_outbox import clock
from sagas_outbox.calling import Caller, Work, caller
from sagas_outbox.encoding import text
from sagas_outbox.errors import NotPublished
from sagas_outbox.queries import query

PACKAGE = "sagas_outbox"


def take(message_id: str | UUID, *, handler: str, using: Any = None) -> bool:
    """Take a message in the caller's transaction, before what it asks for is written there.

    Args:
        message_id: what its sender calls it, in each delivery alike.
        handler: who takes it; several handlers may take the same message, each once.
        using: a Django alias, a session or connection of SQLAlchemy, or a connection of psycopg 3.

    Returns:
        Whether this is the first time. If not, there is nothing to do. A transaction that is taking the same message
        just now is waited for.

    Raises:
        NotPublished: no transaction is open, so that the line and the handler's writes could part.
    """
    found = caller(using, call="take", asynchronous=False)
    return found.run(_taking(found, message_id, handler))


async def atake(message_id: str | UUID, *, handler: str, using: Any = None) -> bool:
    """The asynchronous twin of `take`."""
    found = caller(using, call="take", asynchronous=True)
    return await found.arun(_taking(found, message_id, handler))


def _taking(caller: Caller, message_id: str | UUID, handler: str) -> Work[bool]:
    if not caller.in_transaction():
        raise NotPublished(
            f"take(): no transaction is open on {caller.name}, so the message would count as taken even if its handler "
            f"failed; call it inside the transaction that the handler writes in"
        )
    request: dict[str, Any] = {"id": text(str(message_id), "message_id"), "handler": text(handler, "handler")}
    if (now := clock.now()) is not None:
        request["now"] = now
    answer = yield query(PACKAGE, "take"), msgspec.json.encode(request).decode()
    return answer == "true"
