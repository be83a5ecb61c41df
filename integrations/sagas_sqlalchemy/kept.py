"""Sessions of the application's own class that cannot end their transaction, nor take part in another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session

from sagas_sqlalchemy.keeping import Guard
from sagas_sqlalchemy.sources import Source


class _Kept:
    """Put in front of the application's session class: what ends the transaction is ours alone."""

    _guard: Guard
    bind: Any

    def commit(self) -> None:
        self._guard.check("session.commit()")
        super().commit()  # type: ignore[misc]

    def rollback(self) -> None:
        self._guard.check("session.rollback()")
        super().rollback()  # type: ignore[misc]

    def close(self) -> None:
        self._guard.check("session.close()")
        super().close()  # type: ignore[misc]

    def reset(self) -> None:
        self._guard.check("session.reset()")
        super().reset()  # type: ignore[misc]

    def invalidate(self) -> None:
        self._guard.check("session.invalidate()")
        super().invalidate()  # type: ignore[misc]

    def begin(self, nested: bool = False) -> Any:
        if not nested:
            self._guard.check("session.begin()")
        return super().begin(nested)  # type: ignore[misc]

    def get_bind(self, *_: Any, **__: Any) -> Any:
        """One transaction, that of the log, also where the application's class leads elsewhere, as to a replica."""
        return self.bind

    def connection(self, bind_arguments: Any = None, execution_options: Mapping[str, Any] | None = None) -> Connection:
        """With options also on a connection that was begun before the body, where SQLAlchemy 2.1 ignores them."""
        found: Connection = super().connection()  # type: ignore[misc]
        return found.execution_options(**execution_options) if execution_options else found


_classes: dict[type[Session], type[Session]] = {}


def kept_session(source: Source, guard: Guard, bind: Connection | Engine, **options: Any) -> Session:
    """A new session.

    Args:
        source: the application's class, and the options of its factory.
        guard: is asked before the transaction ends.
        bind: what it works on.
        options: further ones.
    """
    of = source.session_class
    if of not in _classes:
        _classes[of] = type(of.__name__, (_Kept, of), {"__module__": of.__module__})
    session = _classes[of].__new__(_classes[of])
    session._guard = guard  # type: ignore[attr-defined]
    session.__init__(bind=bind, **source.options, **options)  # type: ignore[misc]
    return session
