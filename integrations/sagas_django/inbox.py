"""Handlers of messages whose own writes commit together with taking the message.

@shared_task(acks_late=True, autoretry_for=(Exception,), retry_backoff=True)
@inbox
def send_invoice(order: int) -> None:
    Invoice.objects.create(order_id=order)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, transaction

from sagas_outbox.handling import Handler, make_handler
from sagas_outbox.inbox import take

P = ParamSpec("P")
R = TypeVar("R")


@overload
def inbox(function: Callable[P, R], /) -> Handler[P, R]: ...
@overload
def inbox(*, using: str = DEFAULT_DB_ALIAS, name: str | None = None) -> Callable[[Callable[P, R]], Handler[P, R]]: ...
def inbox(function: Any = None, /, *, using: str = DEFAULT_DB_ALIAS, name: str | None = None) -> Any:
    """Have a function handle each message once, its own writes and the note of it in one transaction.

    Called inside a Celery task it takes that task's message; `handler.take(message_id, ...)` names the message.

    Args:
        function: what is decorated; an ordinary function that writes to the database `using`.
        using: alias of the database that it writes to.
        name: what the note calls the handler; None: its module and name. Keep it when the function moves.
    """

    def in_transaction(
        known: str, id: str | UUID, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        with transaction.atomic(using=using):
            return function(*args, **kwargs) if take(id, handler=known, using=using) else None

    def decorate(function: Callable[..., Any]) -> Any:
        return make_handler(function, name, in_transaction)

    return decorate if function is None else decorate(function)
