"""Cursors that show what they are about to send, also where it goes past the application's own library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.sql import Composable

LOOK: Final = "_sagas_look"  # attribute of a connection: is called with each statement

_classes: dict[type, type] = {}


class _Looking:
    """Put in front of a class of cursors."""

    def execute(self, query: Any, *arguments: Any, **named: Any) -> Any:
        _look(self, query)
        return super().execute(query, *arguments, **named)  # type: ignore[misc]

    def executemany(self, query: Any, *arguments: Any, **named: Any) -> Any:
        _look(self, query)
        return super().executemany(query, *arguments, **named)  # type: ignore[misc]

    def stream(self, query: Any, *arguments: Any, **named: Any) -> Any:
        _look(self, query)
        return super().stream(query, *arguments, **named)  # type: ignore[misc]


def _look(cursor: Any, query: Any) -> None:
    look: Callable[[str], None] | None = getattr(cursor.connection, LOOK, None)
    if look is not None:
        said = query.as_string(cursor.connection) if isinstance(query, Composable) else query
        look(said.decode(errors="replace") if isinstance(said, bytes) else str(said))


def looking(factory: type) -> type:
    """A class of cursors like another, whose statements are shown to whoever looks."""
    if factory not in _classes:
        _classes[factory] = type(factory.__name__, (_Looking, factory), {"__module__": factory.__module__})
    return _classes[factory]


@contextmanager
def shown_to(connection: psycopg.Connection[Any], look: Callable[[str], None]) -> Iterator[None]:
    """Have a function called with each statement before it is sent, for as long as the block runs.

    Args:
        connection: its cursors are of a class from `looking`.
        look: what it raises is raised where the statement was to be executed.
    """
    setattr(connection, LOOK, look)
    try:
        yield
    finally:
        vars(connection).pop(LOOK, None)
