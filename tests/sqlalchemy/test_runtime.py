"""The runtime object: what it takes, what it refuses, and that nothing of it crosses a fork."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sagas import DefinitionError, Saga, ports, step
from sagas.errors import ConfigurationError
from sagas_django.store import DjangoStore
from sagas_sqlalchemy import Sagas, runtime_of
from tests.sqlalchemy.conftest import EngineMaker, rows
from tests.sqlalchemy.shop import Base

RuntimeMaker = Callable[..., Sagas]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": {"leese": 1.0}}, "unknown setting 'leese'; did you mean 'lease'"),
        ({"settings": {"LEASE": 1.0}}, "lower case, not 'LEASE'"),
        ({"settings": {"lease": "long"}}, "lease='long'"),
        ({"settings": ["lease"]}, "a dict or Settings, not list"),
        ({"modules": "shop.sagas"}, r"a list of module names, such as \['shop.sagas'\]"),
        ({"metadata": Base}, r"class 'tests.sqlalchemy.shop.Base'.*; pass Base\.metadata$"),
        ({"metadata": Base()}, r"pass its\.metadata"),
        ({"metadata": "shop"}, r"metadata='shop': a MetaData, such as Base\.metadata"),
        ({"name": "default"}, "another integration has a store of this name"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str, engine: Engine, make_runtime: RuntimeMaker) -> None:
    """Each is refused when the runtime is made, by name and with a hint."""
    ports.register_store("default", lambda: DjangoStore("default"), owner="sagas_django")
    with pytest.raises(ConfigurationError, match=message):
        make_runtime(engine, **options)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda engine: create_engine("sqlite://"), "sagas need Postgres, and this engine is sqlite"),
        (lambda engine: sessionmaker(), "bound to no engine"),
        (lambda engine: sessionmaker(engine, twophase=True), "twophase=True is not supported"),
        (lambda engine: sessionmaker(engine, binds={Session: create_engine("sqlite://")}), "several engines"),
        (lambda engine: Session(engine), r"go to start\(using=...\)"),
        (lambda engine: "postgresql://", "an Engine, AsyncEngine, sessionmaker"),
    ],
)
def test_wrong_sources(source: Any, message: str, engine: Engine, make_runtime: RuntimeMaker) -> None:
    """What is no engine, or more than one, is refused."""
    with pytest.raises(ConfigurationError, match=message):
        make_runtime(source(engine))


def test_right_sources(make_engine: EngineMaker, make_runtime: RuntimeMaker) -> None:
    """Engines and factories, sync and async, lead to one engine."""
    one, other = make_engine("psycopg2"), make_engine("asyncpg")
    factory = async_sessionmaker(other)
    for source in (one, sessionmaker(one), scoped_session(sessionmaker(one)), sessionmaker(binds={Session: one})):
        assert make_runtime(source).engine is one
    for source in (other, factory, async_scoped_session(factory, scopefunc=lambda: 1)):
        assert make_runtime(source).engine is other.sync_engine


def test_two_databases_need_two_names(engine: Engine, make_runtime: RuntimeMaker) -> None:
    """A message could not say which one it means; a closed runtime is forgotten."""
    elsewhere = create_engine("postgresql+psycopg2://user@elsewhere/shop")
    runtime = make_runtime(engine)
    with pytest.raises(ConfigurationError, match="has this name already"):
        make_runtime(elsewhere)
    assert runtime_of(elsewhere) is None and runtime_of(engine) is runtime
    assert runtime_of(engine.execution_options(schema_translate_map={})) is runtime
    other = make_runtime(elsewhere, name="other")
    assert runtime_of(elsewhere) is other and ports.store("other") is other.store
    other.close()
    with pytest.raises(ConfigurationError, match="'other' is not set up"):
        ports.store("other")


def test_an_alias_that_comes_after_the_runtime(
    engine: Engine, make_runtime: RuntimeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever integration comes second is refused, and the first one keeps its store."""
    runtime = make_runtime(engine, name="late")
    monkeypatch.setattr("sagas_django.apps.connections", ["late"])
    with pytest.raises(ConfigurationError, match=r"store 'late' of sagas_django: .*sagas_sqlalchemy, and messages"):
        apps.get_app_config("sagas").ready()
    assert ports.store("late") is runtime.store
    runtime.close()
    apps.get_app_config("sagas").ready()
    try:
        with pytest.raises(ConfigurationError, match="store 'late' of sagas_sqlalchemy: "):
            make_runtime(engine, name="late")
        assert isinstance(ports.store("late"), DjangoStore) and runtime_of(engine) is None
    finally:
        ports.unregister_store("late")


def test_modules_are_imported_late(
    engine: Engine, make_runtime: RuntimeMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a worker asks for the store, so that modules may import the runtime; a missing one is named."""
    (tmp_path / "late_sagas.py").write_text("import no_such_thing_of_theirs\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    runtime = make_runtime(engine, modules=["late_sagas"])
    assert "late_sagas" not in sys.modules
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_thing_of_theirs"):
            runtime.load()
    with pytest.raises(ConfigurationError, match="there is no module 'nowhere'"):
        make_runtime(engine, modules=["nowhere.sagas"]).load()


def test_async_steps_are_refused() -> None:
    """When the class is created, with what to write instead."""
    with pytest.raises(DefinitionError, match=r"async def.*self\.session is a SQLAlchemy Session"):

        class Asynchronous(Saga[int], name="sa.asynchronous", version=1):
            @step
            async def reserve(self) -> None: ...


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_connections_do_not_cross_a_fork(
    driver: str, make_engine: EngineMaker, make_runtime: RuntimeMaker, url: str
) -> None:
    """A child opens its own, and the parent's go on working: the server still knows them after the child has ended."""
    engine = make_engine(driver)
    runtime = make_runtime(engine)
    pid = "select pg_backend_pid()"

    def ask() -> set[int]:
        with runtime.store.local() as transaction, transaction.savepoint(), engine.connect() as connection:
            inside = transaction.session.connection().exec_driver_sql(pid).scalar()
            return {int(inside or 0), int(connection.exec_driver_sql(pid).scalar_one())}

    parent = ask()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = ask()
            os.write(writing, b"apart" if not found & parent else b"shared")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        assert answer.read() == "apart"
    os.waitpid(child, 0)
    assert ask() == parent
    assert set(rows(url, "select pid from pg_stat_activity where datname = current_database()")) >= parent


def test_scoped_sessions_are_removed_after_each_body(engine: Engine, make_runtime: RuntimeMaker) -> None:
    """What a body leaves open in the application's scoped session does not outlive it."""
    scoped = scoped_session(sessionmaker(engine))
    runtime = make_runtime(scoped)
    session = scoped()
    session.connection()
    runtime.store.after_body()
    assert not session.in_transaction() and not scoped.registry.has()
    runtime.store.after_body()
