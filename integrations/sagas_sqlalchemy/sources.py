"""What a runtime may be made of: engines and session factories, sync or async."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.ext.asyncio import async_scoped_session as async_scoped
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sagas.errors import ConfigurationError

OURS: Final = (
    "bind", "binds", "class_", "sync_session_class", "twophase", "join_transaction_mode", "autocommit", "autobegin",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The application's engine, and how it makes sessions."""

    engine: Engine
    session_class: type[Session]
    options: Mapping[str, Any]  # of its session factory, as far as they suit sessions of ours
    scoped: scoped_session[Any] | None = None  # what a body may leave open in its thread


def source_of(given: Any) -> Source:
    """What was given as the first argument of `Sagas(...)`.

    Raises:
        ConfigurationError: it is something else, is bound to nothing, or to several databases.
    """
    if isinstance(given, Engine | AsyncEngine):
        return Source(engine=_sync(given), session_class=Session, options={})
    if isinstance(given, async_scoped):
        given = given.session_factory
    scoped = given if isinstance(given, scoped_session) else None
    factory = given.session_factory if scoped is not None else given
    if not isinstance(factory, sessionmaker | async_sessionmaker):
        raise ConfigurationError(
            f"Sagas({given!r}): an Engine, AsyncEngine, sessionmaker, async_sessionmaker or scoped_session"
            + ("; connections and sessions go to start(using=...)" if isinstance(given, Connection | Session) else "")
        )
    return Source(
        engine=_engine(factory.kw), session_class=_session_class(factory),
        options={name: value for name, value in factory.kw.items() if name not in OURS}, scoped=scoped,
    )  # fmt: skip


def _engine(options: Mapping[str, Any]) -> Engine:
    bind = options.get("bind")
    others = {_sync(each) for each in (options.get("binds") or {}).values()}
    if bind is None and len(others) == 1:
        (bind,) = others
    if bind is None:
        raise ConfigurationError(
            "Sagas(sessionmaker): it is bound to no engine; use sessionmaker(engine), or give engine"
        )
    if others - {_sync(bind)}:
        raise ConfigurationError(
            "Sagas(sessionmaker): its binds lead to several engines, and a local step is one transaction in one "
            "database; make a runtime for each engine, with a name= of its own"
        )
    if options.get("twophase"):
        raise ConfigurationError("Sagas(sessionmaker): twophase=True is not supported; give the engine instead")
    return _sync(bind)


def _sync(bind: Any) -> Engine:
    if isinstance(bind, AsyncEngine):
        return bind.sync_engine
    if isinstance(bind, Engine):
        return bind
    raise ConfigurationError(f"Sagas(...): bound to {bind!r}, which is no engine: its connection cannot be opened anew")


def _session_class(factory: Any) -> type[Session]:
    if isinstance(factory, async_sessionmaker):
        of_async: type[AsyncSession] = factory.class_
        found: type[Session] = factory.kw.get("sync_session_class", of_async.sync_session_class)
        return found
    made: type[Session] = factory.class_
    return made
