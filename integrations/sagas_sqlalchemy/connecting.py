"""From an engine to psycopg 3: what the engine would connect with, whatever driver it uses, said to libpq.

The engine is asked by having it connect and stopping it at the door: `dialect.connect` sees the arguments that are
final, those of the URL, of `connect_args` and of listeners that bring a password of the moment. The door is hung once
and stops only who asks. (A listener of ours that comes and goes would break the iteration of a thread that connects.)
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, Final, NoReturn

import psycopg
from sqlalchemy import Dialect, Engine
from sqlalchemy.exc import MissingGreenlet

from sagas.errors import ConfigurationError

PSYCOPG: Final = "psycopg"
NOT_LIBPQ: Final = {  # what drivers take besides, and workers have no use for
    "psycopg": {"autocommit", "prepare_threshold", "cursor_factory", "row_factory", "context", "async_creator_fn"},
    "psycopg2": {"connection_factory", "cursor_factory", "async", "async_"},
    "asyncpg": {
        "loop", "connection_class", "record_class", "command_timeout", "statement_cache_size",
        "max_cached_statement_lifetime", "max_cacheable_statement_size", "prepared_statement_cache_size",
        "prepared_statement_name_func", "async_fallback", "async_creator_fn",
    },
}  # fmt: skip
RENAMED: Final = {"database": "dbname", "timeout": "connect_timeout", "passfile": "passfile"}
OPENS: Final = "pass connect= a function that opens a connection of psycopg 3"
CREATORS: Final = ("async_creator_fn", "connection_factory")

_asking = threading.local()  # `.dialect`: the one that this thread asks


class _AtTheDoor(Exception):
    """Carries the arguments of a connection that is not to be made."""

    def __init__(self, positional: list[Any], named: dict[str, Any]) -> None:
        self.positional, self.named = positional, named


def connection_parameters(engine: Engine, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """What libpq needs to connect where the engine connects.

    Args:
        engine: the application's; nothing of its pool is used.
        given: what the runtime was told besides, which wins.

    Returns:
        Arguments of `psycopg.connect`; None when the engine has a `creator`, which tells nobody its arguments.

    Raises:
        ConfigurationError: an argument has no counterpart in libpq.
    """
    said = _ask(engine)
    if said is None:
        return None
    driver = engine.dialect.driver.removesuffix("_async")
    named = {name: value for name, value in said.named.items() if value is not None and name not in given}
    for name in CREATORS:
        if name in named:
            _refuse(engine, f"connect_args={{{name!r}: ...}}", OPENS)
    named = {name: value for name, value in named.items() if name not in NOT_LIBPQ.get(driver, ())}
    if driver == "asyncpg":
        named = _from_asyncpg(engine, named)
    elif driver == "psycopg2":
        named = {RENAMED.get(name, name): value for name, value in named.items()}
        if dsn := named.pop("dsn", None):
            named = {**psycopg.conninfo.conninfo_to_dict(dsn), **named}
    elif driver != PSYCOPG:
        _refuse(engine, f"driver {driver!r}", "use psycopg, psycopg2 or asyncpg, or pass connect=")
    if said.positional and said.positional[0]:
        named = {**psycopg.conninfo.conninfo_to_dict(said.positional[0]), **named}
    return {**named, **given}


def _ask(engine: Engine) -> _AtTheDoor | None:
    if getattr(getattr(engine.pool, "_creator", None), "__qualname__", "").startswith("create_async_engine."):
        _refuse(engine, "async_creator", OPENS)  # before it makes a coroutine that nobody awaits
    _hang_door(engine.dialect)
    _asking.dialect = engine.dialect
    try:
        opened = engine.pool.recreate().connect()
        opened.detach()  # a creator does not ask: close what it made
        opened.close()
    except _AtTheDoor as said:
        return said
    except MissingGreenlet:  # it is awaited, and here is no loop
        _refuse(engine, "creator", OPENS)
    finally:
        _asking.dialect = None
    return None


def _hang_door(dialect: Dialect) -> None:
    enter = dialect.connect
    if getattr(enter, "is_our_door", False):
        return

    def door(*positional: Any, **named: Any) -> Any:
        if getattr(_asking, "dialect", None) is dialect:
            raise _AtTheDoor(list(positional), dict(named))
        return enter(*positional, **named)

    door.is_our_door = True  # type: ignore[attr-defined]
    dialect.connect = door  # type: ignore[method-assign] # no lock: two threads hang one behind the other, and both do


def creator_of(engine: Engine) -> Callable[[], psycopg.Connection[Any]]:
    """How an engine with a `creator` connects.

    Raises:
        ConfigurationError: not through psycopg 3, which workers need.
    """
    if engine.dialect.driver != PSYCOPG or engine.dialect.is_async:
        _refuse(engine, "creator", OPENS)

    def connect() -> psycopg.Connection[Any]:
        proxied = engine.pool.recreate().connect()
        connection = proxied.driver_connection
        proxied.detach()
        assert isinstance(connection, psycopg.Connection)
        connection.rollback()  # what pool events may have begun
        return connection

    return connect


def _from_asyncpg(engine: Engine, named: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in named.items():
        if name == "ssl":
            found |= _ssl(engine, value)
        elif name == "server_settings":
            found["options"] = " ".join(f"-c {key}={_escaped(str(each))}" for key, each in value.items())
        elif name == "password" and callable(value):
            found["password"] = value()
            if not isinstance(found["password"], str):
                _refuse(engine, "a password that is awaited", "pass connect_args={'password': ...} or connect=")
        elif name in ("host", "port") and isinstance(value, list | tuple):
            found[name] = ",".join(map(str, value))
        elif name in ("dsn", "direct_tls"):
            _refuse(engine, f"{name}={value!r}", "say the same in connect_args= of Sagas(...), in libpq's words")
        else:
            found[RENAMED.get(name, name)] = _whole_seconds(value) if name == "timeout" else value
    return found


def _whole_seconds(timeout: Any) -> int:
    """To libpq 0 means for ever, and 1 means 2."""
    return max(2, ceil(float(timeout)))


def _ssl(engine: Engine, value: Any) -> dict[str, str]:
    if isinstance(value, ssl.SSLContext):
        _refuse(
            engine, "ssl=SSLContext(...)", "say the same in connect_args={'sslmode': ..., 'sslrootcert': ...}"
        )  # fmt: skip
    if value is True:
        return {"sslmode": "verify-full", "sslrootcert": "system"}  # what asyncpg makes of it
    return {"sslmode": "disable" if value is False else str(value)}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def _refuse(engine: Engine, what: str, instead: str) -> NoReturn:
    raise ConfigurationError(
        f"Sagas({engine.url!r}): workers use psycopg 3, and {what} of this engine cannot be told to it; {instead}"
    )
