"""Handlers of messages whose own writes commit together with taking the message.

@app.task(acks_late=True, autoretry_for=(Exception,), retry_backoff=True)
@inbox(sessions)                                     # a sessionmaker, an Engine, or the runtime's `Sagas`
def send_invoice(session: Session, order: int) -> None:
    session.add(Invoice(order_id=order))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar
from uuid import UUID

from sqlalchemy.orm import Session

from sagas_outbox.handling import Handler, make_handler
from sagas_outbox.inbox import take
from sagas_sqlalchemy.keeping import Guard
from sagas_sqlalchemy.kept import kept_session
from sagas_sqlalchemy.runtime import Sagas
from sagas_sqlalchemy.sources import source_of

INSTEAD: Final = "what it writes commits together with the note that the message was taken; to undo it all, raise"
P = ParamSpec("P")
R = TypeVar("R")


def inbox(
    source: Any, *, name: str | None = None
) -> Callable[[Callable[Concatenate[Session, P], R]], Handler[P, R]]:  # fmt: skip
    """Have a function handle each message once, its own writes and the note of it in one transaction.

    Called inside a Celery task it takes that task's message; `handler.take(message_id, ...)` names the message. The
    function is given a session first, which is committed when it returns and rolled back when it raises.

    Args:
        source: where sessions come from: an `Engine`, a `sessionmaker`, or a `Sagas`.
        name: what the note calls the handler; None: its module and name. Keep it when the function moves.

    Raises:
        ConfigurationError: it is something else.
    """
    found = source.source if isinstance(source, Sagas) else source_of(source)

    def in_transaction(
        known: str, id: str | UUID, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        guard = Guard("a handler of messages", INSTEAD)
        guard.open = True
        with kept_session(found, guard, found.engine) as session, session.begin():
            if not take(id, handler=known, using=session):
                return None
            guard.open = False
            try:
                result = function(session, *args, **kwargs)
            finally:
                guard.open = True
            if guard.offence is not None:
                raise guard.offence  # also when the handler swallowed it
            return result

    def decorate(function: Callable[Concatenate[Session, P], R]) -> Handler[P, R]:
        return make_handler(function, name, in_transaction, hidden=1)

    return decorate
