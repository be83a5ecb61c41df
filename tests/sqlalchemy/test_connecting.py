"""From an engine to psycopg 3: the same server, user and options, whatever the driver; or a refusal in words."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from sagas.errors import ConfigurationError
from sagas_sqlalchemy import Sagas
from sagas_sqlalchemy.connecting import connection_parameters
from tests.docs.reading import ROOT, blocks
from tests.sqlalchemy.conftest import DRIVERS, EngineMaker, drain, with_driver

RuntimeMaker = Callable[..., Sagas]


def parameters(driver: str, rest: str, given: dict[str, Any] | None = None, **options: Any) -> dict[str, Any] | None:
    """What would be told to libpq; nothing listens there."""
    url = f"postgresql+{driver}://{rest}"
    if driver in ("asyncpg", "psycopg_async"):
        return connection_parameters(create_async_engine(url, **options).sync_engine, given or {})
    return connection_parameters(create_engine(url, **options), given or {})


@pytest.mark.parametrize("driver", DRIVERS)
def test_an_address(driver: str) -> None:
    """User, password, host, port and database, with what must be quoted in a URL."""
    found = parameters(driver, "us%40er:p%2Fw%3A@db.example:6000/shop")
    assert found is not None
    assert {name: str(value) for name, value in found.items()} == {
        "user": "us@er", "password": "p/w:", "host": "db.example", "port": "6000", "dbname": "shop"
    }  # fmt: skip


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_socket(driver: str) -> None:
    """A directory instead of a host."""
    found = parameters(driver, "user@/shop?host=/var/run/postgresql")
    assert found is not None and (found["host"], found["dbname"]) == ("/var/run/postgresql", "shop")


@pytest.mark.parametrize(
    ("driver", "arguments", "expected"),
    [
        ("psycopg", {"sslmode": "require", "prepare_threshold": None}, {"sslmode": "require"}),
        ("psycopg2", {"options": "-c x=y", "connection_factory": None}, {"options": "-c x=y"}),
        ("psycopg2", {"dsn": "sslmode=verify-ca"}, {"sslmode": "verify-ca"}),
        ("asyncpg", {"ssl": "require", "timeout": 3.5}, {"sslmode": "require", "connect_timeout": 4}),
        *(("asyncpg", {"timeout": seconds}, {"connect_timeout": 2}) for seconds in (0, 0.5, 1, 2)),
        ("asyncpg", {"timeout": "60"}, {"connect_timeout": 60}),
        ("asyncpg", {"ssl": False}, {"sslmode": "disable"}),
        ("asyncpg", {"ssl": True}, {"sslmode": "verify-full", "sslrootcert": "system"}),
        ("asyncpg", {"server_settings": {"a.b": "c d"}, "command_timeout": 9}, {"options": r"-c a.b=c\ d"}),
        ("asyncpg", {"password": lambda: "fresh"}, {"password": "fresh"}),
    ],
)
def test_arguments_are_translated(driver: str, arguments: dict[str, Any], expected: dict[str, Any]) -> None:
    """`connect_args` of each driver in libpq's words; what only concerns the driver is left out."""
    found = parameters(driver, "user@db/shop", connect_args=arguments)
    assert found is not None
    assert {name: value for name, value in found.items() if name not in ("user", "host", "dbname")} == expected


def test_what_asyncpg_needs_behind_pgbouncer_is_not_for_workers() -> None:
    """The engine of docs/pgbouncer.md tells them where the database is, and nothing else."""
    (code,) = [block.text for block in blocks(ROOT / "docs" / "pgbouncer.md") if "create_async_engine" in block.text]
    names: dict[str, Any] = {}
    exec(compile(code, "pgbouncer.md", "exec", dont_inherit=True), names)
    assert connection_parameters(names["engine"].sync_engine, {}) == {
        "user": "user", "password": "password", "host": "pgbouncer", "port": 6432, "dbname": "shop"
    }  # fmt: skip


async def awaited() -> str:
    return "secret"


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ssl": ssl.create_default_context()}, "SSLContext.*sslrootcert"),
        ({"direct_tls": True}, "direct_tls"),
        ({"password": awaited}, "a password that is awaited"),
        ({"async_creator_fn": awaited}, "pass connect="),
    ],
)
def test_what_cannot_be_translated_is_refused(arguments: dict[str, Any], message: str) -> None:
    """With what to do instead; said in libpq's words beside the engine, it is no longer asked about."""
    with pytest.raises(ConfigurationError, match=message):
        parameters("asyncpg", "user@db/shop", connect_args=arguments)
    (name,) = arguments
    given = {name: None} if name in ("ssl", "direct_tls") else {}
    if given:
        assert parameters("asyncpg", "user@db/shop", given, connect_args=arguments)


def test_listeners_have_the_last_word(engine: Engine) -> None:
    """A password of the moment, put in by a `do_connect` listener, is the one used, each time anew."""
    tokens = iter("abc")

    @event.listens_for(engine, "do_connect")
    def token(dialect: Any, record: Any, positional: Any, named: dict[str, Any]) -> None:
        named["password"] = next(tokens)

    assert [(connection_parameters(engine, {}) or {})["password"] for _ in range(2)] == ["a", "b"]
    event.remove(engine, "do_connect", token)
    with engine.connect():
        pass  # nothing of ours is left behind that would stop it


def test_a_creator_of_psycopg(url: str, make_runtime: RuntimeMaker) -> None:
    """It is used as it is."""
    made = []

    def creator() -> psycopg.Connection[Any]:
        made.append(1)
        return psycopg.connect(url)

    engine = create_engine("postgresql+psycopg://", creator=creator)
    with make_runtime(engine).store.connect() as connection:
        assert connection.autocommit and connection.execute("select 1").fetchone() == (1,)
    assert made
    engine.dispose()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_a_creator_that_is_awaited(driver: str, url: str, make_runtime: RuntimeMaker) -> None:
    """It cannot be called without an event loop: said, with what to pass; and with that it works."""

    async def creator() -> Any:
        raise AssertionError("nobody can await it")

    engine = create_async_engine(f"postgresql+{driver}://", async_creator=creator)
    with pytest.raises(ConfigurationError, match="async_creator of this engine cannot be told to it; pass connect= a"):
        make_runtime(engine).store.connect()
    runtime = make_runtime(engine, connect=lambda: psycopg.connect(url))
    with closing(runtime.store.connect()) as connection, runtime.store.local() as transaction:
        assert connection.execute("select 1").fetchone() == transaction.connection.execute("select 1").fetchone()


def test_a_creator_of_another_driver(url: str, make_runtime: RuntimeMaker) -> None:
    """Nobody knows where it leads: a function for psycopg 3 is asked for, and used."""
    import psycopg2  # type: ignore[import-untyped]

    engine = create_engine("postgresql+psycopg2://", creator=lambda: psycopg2.connect(url))
    with pytest.raises(ConfigurationError, match="pass connect= a function"):
        make_runtime(engine).store.connect()
    runtime = make_runtime(engine, connect=lambda: psycopg.connect(url))
    drain(runtime)
    with runtime.store.local() as transaction, transaction.savepoint():
        assert transaction.session.connection().exec_driver_sql("select 1").scalar() == 1
    engine.dispose()


def test_a_server_that_is_not_there(make_runtime: RuntimeMaker) -> None:
    """The driver's own error, which workers take as a reason to try again."""
    runtime = make_runtime(create_engine("postgresql+psycopg2://user@127.0.0.1:1/nowhere"))
    with pytest.raises(psycopg.OperationalError):
        runtime.store.connect()


@pytest.mark.parametrize("prepared", [True, False])
def test_prepared_statements(prepared: bool, make_engine: EngineMaker, make_runtime: RuntimeMaker) -> None:
    """The setting holds for workers' connections."""
    runtime = make_runtime(make_engine("psycopg2"), settings={"prepared": prepared})
    with runtime.store.connect() as connection:
        assert (connection.prepare_threshold is not None) == prepared


@pytest.mark.parametrize(("prepared", "level"), [(True, "read committed"), (False, "repeatable read")])
def test_isolation(prepared: bool, level: str, url: str, make_runtime: RuntimeMaker) -> None:
    """Workers see what is committed meanwhile, whatever the role says; a session that others get too, behind a pooler,
    is left as it is."""
    engine = create_engine(with_driver(url, "psycopg"))
    runtime = make_runtime(
        engine, settings={"prepared": prepared},
        connect_args={"options": r"-c default_transaction_isolation=repeatable\ read"},
    )  # fmt: skip
    with runtime.store.connect() as connection:
        assert connection.execute("show transaction_isolation").fetchone() == (level,)


def test_urls_are_the_same(url: str) -> None:
    """Of every driver."""
    assert {str(parameters(driver, with_driver(url, driver).partition("://")[2])) for driver in ("psycopg", "psycopg2")}


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_connection_that_turned_read_only_is_replaced(
    wrapped: bool, make_engine: EngineMaker, make_runtime: RuntimeMaker
) -> None:
    """After a failover a pooled session may live on and refuse every write: the next local step gets another."""
    pooled = make_engine("psycopg", pool_size=1, max_overflow=0)
    with pooled.begin() as connection:
        connection.exec_driver_sql("set default_transaction_read_only = on")
    store = make_runtime(pooled).store
    write = "update sagas_outbox set due_at = due_at"

    def once() -> None:
        with store.local() as local:
            if wrapped:
                with local.savepoint():
                    assert local.session is not None
                    local.session.execute(text(write))
            else:
                local.connection.execute(write)

    with pytest.raises((psycopg.errors.ReadOnlySqlTransaction, DBAPIError)):
        once()
    once()
