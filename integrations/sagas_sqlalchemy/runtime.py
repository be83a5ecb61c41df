"""The runtime object: which engine sagas live behind, by what numbers, and where their definitions are."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psycopg
from sqlalchemy import Engine, MetaData
from sqlalchemy.engine import URL

from sagas import ports, typed
from sagas.doctor import Problem
from sagas.errors import ConfigurationError
from sagas.registry import registry
from sagas.releases import FILE
from sagas.settings import Settings
from sagas_sqlalchemy.sources import Source, source_of
from sagas_sqlalchemy.tables import SagasTables, sagas_tables

POSTGRES: Final = "postgresql"

_runtimes: dict[str, Sagas] = {}


class Sagas:
    """Sagas in one database of a SQLAlchemy application. Make one, beside the engine, at module level.

    Args:
        source: an `Engine` or `AsyncEngine`, or the (async) `sessionmaker` or `scoped_session` that the application
            makes sessions with. Local steps get sessions like its own; `self.session` is always a plain `Session`.
        metadata: the `MetaData` that the tables are put on; None: they are there, or made by migrations alone.
        schema: the database schema of the tables; None: wherever `search_path` leads.
        modules: names of the modules that define sagas, imported when a worker starts.
        settings: names and values, lower case, as in docs/settings.md; what is left out keeps its default.
        name: what messages call this database. Processes that share a broker must agree on it.
        connect_args: what libpq needs to connect and the engine's own arguments do not say, such as `sslrootcert`.
        connect: opens a connection of psycopg 3; only where the engine has a `creator` that cannot be used.
        celery: the Celery app that `sagas relay` publishes to.
        payload_codec: seals payloads (encryption, compression): a `sagas.payloads.PayloadCodec`, several, or where it
            is as "module.attribute"; see docs/payloads.md.
        definitions_file: where `sagas definitions --release` keeps what was released.
        publishers: who sends plain messages of which scheme, as an object or "module.attribute"; see docs/messages.md.

    Raises:
        ConfigurationError: the database is no Postgres, a setting is unknown or wrong, or another database has
            this name.
    """

    def __init__(
        self,
        source: Any,
        *,
        metadata: MetaData | None = None,
        schema: str | None = None,
        modules: Iterable[str] = (),
        settings: Settings | Mapping[str, Any] | None = None,
        name: str = "default",
        connect_args: Mapping[str, Any] | None = None,
        connect: Callable[[], psycopg.Connection[Any]] | None = None,
        celery: Any = None,
        payload_codec: Any = None,
        definitions_file: str | Path = FILE,
        publishers: Mapping[str, Any] | None = None,
    ) -> None:
        self.source: Source = source_of(source)
        if self.engine.dialect.name != POSTGRES:
            raise ConfigurationError(
                f"Sagas(...): sagas need Postgres, and this engine is {self.engine.dialect.name} ({self.engine.url!r})"
            )
        self.name = name
        self.tables: SagasTables | None = None if metadata is None else sagas_tables(metadata, schema=schema)
        self.schema = self.tables.schema if self.tables else schema
        self.settings = _settings(settings)
        if payload_codec is not None:
            self.settings = replace(self.settings, payload_codec=payload_codec)
        self.modules = _modules(modules)
        self.connect_args = dict(connect_args or {})
        self.celery = celery
        self.definitions_file = Path(definitions_file)
        self.publishers = dict(publishers or {})
        self._loaded, self._loading = False, threading.RLock()
        self._register()
        from sagas_sqlalchemy.store import SqlAlchemyStore

        self._store = SqlAlchemyStore(self, connect)
        _forget_after_fork(self)

    @property
    def engine(self) -> Engine:
        """The application's engine; of an `AsyncEngine` its `sync_engine`."""
        return self.source.engine

    @property
    def url(self) -> URL:
        """Where the database is."""
        return self.engine.url

    @property
    def store(self) -> Any:
        """The database as workers and relays see it (`sagas.ports.Store`). Imports the modules."""
        self.load()
        return self._store

    @property
    def remedy(self) -> str:
        """How the tables get into the database."""
        return "run a migration that calls sagas_sqlalchemy.alembic.upgrade(op, to=...), or metadata.create_all()"

    def problems(self) -> Iterator[Problem]:
        """What is wrong with settings, definitions and the Celery app, if there is one, for `sagas doctor`."""
        from sagas_sqlalchemy import checks

        self.load()
        yield from checks.look(self)
        app = self._celery_app()
        if app is None:
            return
        from sagas.store.rows import paces
        from sagas_celery.doctor import examine

        with closing(self.store.connect()) as connection:
            yield from examine(app, self.settings, paces(connection))

    def check(self, command: str = "sagas") -> None:
        """See that workers may start: what hurts one day is logged, and what would not work is refused.

        Args:
            command: what hints begin commands with.

        Raises:
            ConfigurationError: a released definition was changed, say; see docs/checks.md.
        """
        from sagas_sqlalchemy import checks

        self.load()
        checks.insist(checks.look(self), command)

    def _celery_app(self) -> Any:
        """The app that this runtime was given, or that this process has set; None: there is none."""
        if self.celery is not None or find_spec("celery") is None:
            return self.celery
        from celery import current_app

        from sagas_celery.app import FALLBACK

        return None if current_app.main == FALLBACK else current_app

    def publisher(self, app: str | None = None) -> Any:
        """Where `sagas relay` publishes (`sagas_outbox.relay.Publisher`).

        Args:
            app: the Celery app, as for `celery -A`; None: the one that this runtime was given, or else the current one.

        Raises:
            ConfigurationError: there is no such app, it would defeat the outbox, or Celery is not installed.
        """
        if find_spec("celery") is None:
            raise ConfigurationError("a relay publishes to Celery: pip install 'outbox-sagas[celery]'")
        from sagas_celery.app import celery_app
        from sagas_celery.doctor import misconfigured
        from sagas_celery.publisher import CeleryPublisher
        from sagas_sqlalchemy import checks

        found = (
            self.celery
            if app is None and self.celery is not None
            else celery_app(
                app,
                option="--celery",
                remedy="give the runtime celery=app, or name the app with --celery shop.celery_app:app",
            )
        )
        self.load()
        checks.insist(misconfigured(found), "sagas")
        return CeleryPublisher(
            found, self.name, timeout=self.settings.publish_timeout, publishers=self.publishers
        )  # fmt: skip

    def load(self) -> None:
        """Import the modules that define sagas, and finish the checks of every definition. Workers do it by themselves.

        Raises:
            ConfigurationError: a module cannot be found.
            DefinitionError: a definition is wrong.
        """
        with self._loading:
            if self._loaded:
                return
            self._loaded = True  # already: a module may well ask for settings while it is imported
            try:
                for module in self.modules:
                    _import(module)
                registry.load()
            except BaseException:
                self._loaded = False
                raise

    def _before_work(self, app: Any) -> None:
        """What a Celery worker with this app looks at when it starts."""
        from sagas_celery.doctor import misconfigured
        from sagas_sqlalchemy import checks

        if _runtimes.get(self.name) is self:  # not closed since
            checks.insist(misconfigured(app), "sagas --app ...")
            checks.before_work(self)

    def close(self) -> None:
        """Forget this runtime: its name is free, and connections of its own are closed. The engine stays as it is."""
        if _runtimes.get(self.name) is self:
            del _runtimes[self.name]
            ports.unregister_store(self.name)
        self._store.close()

    def _register(self) -> None:
        other = _runtimes.get(self.name)
        if other is not None and _place(other) != _place(self):
            raise ConfigurationError(
                f"Sagas(name={self.name!r}): {other.url!r} has this name already; give one of the two another name=, "
                f"which all its processes must agree on, or close() the other"
            )
        ports.register_store(self.name, lambda: self.store, owner="sagas_sqlalchemy")
        if find_spec("celery") is not None:
            import_module("sagas_celery.tasks")  # a worker that does not know the task would throw its messages away
            process = import_module("sagas_celery.process")
            process.load_at_start(self.name, self.load)
            process.check_at_start(f"store {self.name!r}", self._before_work)
        _runtimes[self.name] = self
        if "SAGAS_APP" not in os.environ:
            typed.begin_with("sagas --app MODULE:NAME", unless_known=True)

    def __repr__(self) -> str:
        return f"<Sagas {self.name!r} in {self.url!r}>"


def runtime_of(engine: Engine) -> Sagas | None:
    """The runtime of an engine, also of one that shares its pool (`engine.execution_options`), or else the one of the
    same database; None when there is none."""
    known = list(_runtimes.values())
    for runtime in known:
        if runtime.engine is engine or runtime.engine.pool is engine.pool:
            return runtime
    url = engine.url
    same = [each for each in known if _database(each.url) == _database(url)]
    return same[0] if len(same) == 1 else None


def _database(url: URL) -> tuple[Any, ...]:
    return url.host, url.port, url.database


def _place(runtime: Sagas) -> tuple[Any, ...]:
    return (*_database(runtime.url), runtime.schema)


def _settings(given: Settings | Mapping[str, Any] | None) -> Settings:
    if isinstance(given, Settings):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise ConfigurationError(f"Sagas(settings=...): a dict or Settings, not {type(given).__name__}")
    for name in given or ():
        if not (isinstance(name, str) and name.islower()):
            raise ConfigurationError(f"Sagas(settings=...): setting names are written in lower case, not {name!r}")
    return Settings.of(given or {}, where="Sagas(settings=...)")


def _modules(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ConfigurationError(f"Sagas(modules={given!r}): a list of module names, such as [{given!r}]")
    return tuple(given)


def _import(module: str) -> None:
    try:
        import_module(module)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{module}.".startswith(f"{problem.name}."):
            raise  # of something that the module itself imports
        raise ConfigurationError(
            f"Sagas(modules=[{module!r}]): there is no module {problem.name!r}; give its full name, and run from where "
            f"it can be imported"
        ) from problem


def _forget_after_fork(runtime: Sagas) -> None:
    """A child has no use for its parent's connections, and must not close them either."""
    known = weakref.ref(runtime)

    def in_child() -> None:
        alive = known()
        if alive is not None:
            alive.engine.dispose(close=False)
            alive._store.forget()

    os.register_at_fork(after_in_child=in_child)
