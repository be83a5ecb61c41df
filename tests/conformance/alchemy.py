"""SQLAlchemy's adapter: every kind of session and connection as a unit, and what bodies of local steps do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from sqlalchemy import Engine, Identity, event, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sagas.testing.conformance import Integration, Unit
from sagas_sqlalchemy import HasSagas, Sagas, sagas_tables


class Base(DeclarativeBase):
    pass


sagas_tables(Base.metadata)


class Note(HasSagas, Base):
    """The suite's notes; the columns that have defaults are not mapped."""

    __tablename__ = "conformance_note"
    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    text: Mapped[str]


class AlchemyUnit(Unit):
    """A transaction of a `Session` or `Connection`, or of one of their asynchronous twins.

    Args:
        using: it.
        runner: of the event loop, for the twins.
    """

    def __init__(self, using: Any, runner: asyncio.Runner | None = None) -> None:
        self.using, self._runner = using, runner
        self.awaited = runner is not None
        self._plain: Any = getattr(using, "sync_session", getattr(using, "sync_connection", using))

    def wait(self, given: Awaitable[Any]) -> Any:
        async def waiting() -> Any:
            return await given

        assert self._runner is not None
        return self._runner.run(waiting())

    def _do(self, call: Callable[[Any], Any]) -> Any:
        return self.wait(self.using.run_sync(call)) if self.awaited else call(self.using)

    def execute(self, statement: str) -> Any:
        def run(plain: Any) -> Any:
            connection = plain.connection() if isinstance(plain, Session) else plain
            return connection.exec_driver_sql(statement)

        return self._do(run)

    def commit(self) -> None:
        self._do(lambda plain: plain.commit())

    def rollback(self) -> None:
        self._do(lambda plain: plain.rollback())

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        nested = self._do(lambda plain: plain.begin_nested())
        try:
            yield
        except BaseException:
            self._do(lambda plain: nested.rollback())
            raise
        self._do(lambda plain: nested.commit())

    def keep_back(self, text: str) -> bool:
        if not isinstance(self._plain, Session):
            return False
        self._plain.add(Note(text=text))
        return True

    def kept_back(self) -> bool:
        return bool(self._plain.new)

    def subject(self) -> tuple[Any, tuple[str, str]] | None:
        if not isinstance(self._plain, Session):
            return None
        note = Note(text="subject")
        self._plain.add(note)
        return note, ("Note", "1")


class Alchemy(Integration):
    """One database of an application.

    Args:
        url: for psycopg.
        engine: makes an engine of the application; asynchronous for the twins.
        open: opens a session or connection on an engine.
        runtime: of the application.
    """

    def __init__(self, url: str, engine: Callable[[], Any], open: Callable[[Any], Any], runtime: Sagas) -> None:
        self.url, self._engine, self._open, self._runtime = url, engine, open, runtime
        self.store = runtime.store

    def transaction(self) -> AbstractContextManager[Unit]:
        return self._unit(self._engine())

    def autocommit(self) -> AbstractContextManager[Unit]:
        return self._unit(self._engine().execution_options(isolation_level="AUTOCOMMIT"))

    @contextmanager
    def _unit(self, engine: Any) -> Iterator[Unit]:
        if isinstance(engine, Engine):
            with self._open(engine) as using:
                yield AlchemyUnit(using)
            return
        with asyncio.Runner() as runner:
            try:
                using = runner.run(self._entered(engine))
                try:
                    yield AlchemyUnit(using, runner)
                finally:
                    runner.run(using.close())
            finally:
                runner.run(engine.dispose())  # its connections belong to this loop

    async def _entered(self, engine: Any) -> Any:
        return await self._open(engine).__aenter__()

    def write(self, run: Any, text: str) -> None:
        run.session.add(Note(text=text))

    def execute(self, run: Any, statement: str) -> None:
        run.session.execute(text(statement))

    def savepoint(self, run: Any) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = run.session.begin_nested()
        return found

    def after_commit(self, run: Any, call: Callable[[], object]) -> None:
        event.listen(run.session, "after_commit", lambda session: call())

    def endings(self) -> Mapping[str, Callable[[Any], object]]:
        return {
            "session.commit": lambda run: run.session.commit(),
            "session.rollback": lambda run: run.session.rollback(),
            "session.close": lambda run: run.session.close(),
            "session.reset": lambda run: run.session.reset(),
            "session.begin": lambda run: run.session.begin(),
            "connection.commit": lambda run: run.session.connection().commit(),
            "connection.rollback": lambda run: run.session.connection().rollback(),
            "connection.close": lambda run: run.session.connection().close(),
            "COMMIT": lambda run: run.session.execute(text("COMMIT")),
            "ROLLBACK": lambda run: run.session.execute(text("ROLLBACK")),
        }

    def leave_open(self, run: Any) -> None:
        scoped = self._runtime.source.scoped
        if scoped is not None:  # what is not scoped is the body's own to close
            scoped().execute(text("select 1"))
