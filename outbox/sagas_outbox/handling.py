"""Handlers of messages as plain functions; integrations say in which transaction they run."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from inspect import Signature, iscoroutinefunction, signature
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast
from uuid import UUID

from sagas_outbox.errors import NotPublished

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_sources: list[Callable[[], str | None]] = []


class Handler(Protocol, Generic[P, R_co]):
    """A function that handles each message once."""

    handler_name: str  # what the note of a taken message calls it

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co | None:
        """Handle the message of the running Celery task, unless it was handled before.

        Raises:
            NotPublished: no task is running, so nobody knows which message this is.
        """

    def take(self, message_id: str | UUID, /, *args: P.args, **kwargs: P.kwargs) -> R_co | None:
        """Handle a message, unless it was handled before: in one transaction with the note that it is.

        Returns:
            What the function returned; None for a message that was handled before.
        """


def message_ids_from(source: Callable[[], str | None]) -> None:
    """Have a source say which message is being handled just now; None: none that it knows of."""
    if source not in _sources:
        _sources.append(source)


def make_handler(
    function: Callable[..., R],
    name: str | None,
    in_transaction: Callable[[str, str | UUID, Callable[..., R], tuple[Any, ...], dict[str, Any]], R | None],
    *,
    hidden: int = 0,
) -> Handler[Any, R]:
    """A handler around a function.

    Args:
        function: it.
        name: what the note of a taken message calls it; None: its module and name.
        in_transaction: is given the name, the message's id, the function, and what it is called with; calls the
            function in the transaction that took the message, if that is the first time.
        hidden: how many arguments are given by `in_transaction`, and not by callers.

    Raises:
        TypeError: it is `async def`, and would not have run when its transaction ends.
    """
    if iscoroutinefunction(function):
        raise TypeError(f"{function.__qualname__} is async def: the inbox takes plain functions; call atake() in yours")
    known = name or f"{function.__module__}.{function.__qualname__}"

    def take(message_id: str | UUID, /, *args: Any, **kwargs: Any) -> R | None:
        return in_transaction(known, message_id, function, args, kwargs)

    def handle(*args: Any, **kwargs: Any) -> R | None:
        for source in _sources:
            if (id := source()) is not None:
                return take(id, *args, **kwargs)
        raise NotPublished(f"{known}(): no Celery task is running; call {function.__name__}.take(message_id, ...)")

    update_wrapper(handle, function)
    del handle.__wrapped__  # type: ignore[attr-defined]  # not what callers call
    whole = signature(function)
    made = cast(Any, handle)
    made.__signature__ = Signature(list(whole.parameters.values())[hidden:], return_annotation=whole.return_annotation)
    made.take, made.handler_name = take, known
    return cast("Handler[Any, R]", made)
