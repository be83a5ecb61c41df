"""Tells one story: the world as it was, a saga started anew, faults, and a look at what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from sagas import clock, engine
from sagas.store.rows import Connection
from sagas.testing.borrowed import borrow
from sagas.testing.explorer.checks import call, checked
from sagas.testing.explorer.driver import Driver
from sagas.testing.explorer.faults import Fault, title
from sagas.testing.explorer.memory import Memory
from sagas.testing.explorer.places import SagaClass
from sagas.testing.explorer.script import Script
from sagas.testing.explorer.stage import Stage
from sagas.testing.explorer.story import Story
from sagas.testing.explorer.world import World
from sagas_outbox.queries import query, run

PACKAGE = "sagas.testing.explorer"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What `explore` was called with."""

    saga: SagaClass
    input: Any
    invariant: Callable[..., Any] | None
    setup: Callable[..., Any] | None
    reset: Callable[..., Any] | None
    key: str | None
    using: Any
    error: Callable[[], BaseException]
    commit: bool
    signals: Mapping[str, Any]


class _Over(Exception):
    """The story is over: everything it wrote is rolled back."""


class Teller:
    """Tells stories of one saga, each as if it were the first."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self.plan, self.stage = plan, stage
        self.store = borrow(plan.using)
        known = (plan.invariant, plan.setup, plan.reset, plan.input if _makes(plan.input) else None)
        self.memory = Memory(plan.saga, [each for each in known if each is not None])
        untended = plan.reset is None and plan.setup is None and plan.invariant is not None
        self.world = World(plan.invariant) if untended and plan.invariant is not None else None
        self.remembered: set[str] = set()  # names of what bodies kept in memory so far
        self.number, self.batch = 0, uuid4().hex[:8]

    def tell(self, faults: tuple[Fault, ...]) -> tuple[Story, Script]:
        """Tell one story."""
        stands = clock.now()
        try:
            with self._page() as connection:
                return self._tell(connection, faults)
        finally:
            if stands is None:  # else the test moved it, and we do not
                clock.go_by(None)

    def _tell(self, connection: Connection, faults: tuple[Fault, ...]) -> tuple[Story, Script]:
        plan = self.plan
        self.memory.forget()
        if self.world is not None:
            self.world.put_back()
        for prepare in (plan.reset, plan.setup):
            if prepare is not None:
                call(prepare)
        without = [id for (id,) in run(connection, query(PACKAGE, "known"), {})]
        script = Script(faults=faults, cancel=lambda: driver.cancel(), error=plan.error, watch=True)
        with self.stage.playing(script):
            driver = self._driver(connection, script, without)
            driver.play()
            ended = engine.get(plan.saga, id=driver.id, using=plan.using)
            problems = tuple(checked(connection, ended, script, driver.problem, plan.invariant))
        self.remembered |= set(self.memory.changed())
        self.memory.forget()
        story = Story(
            name=title(faults), moments=tuple(script.moments), problems=problems, run=ended, faults=len(faults)
        )  # fmt: skip
        return story, script

    def _driver(self, connection: Connection, script: Script, without: list[UUID]) -> Driver:
        plan, self.number = self.plan, self.number + 1
        given = call(plan.input) if _makes(plan.input) else plan.input
        begun = plan.saga.start(
            given, key=plan.key or f"explore-{self.batch}-{self.number}", using=plan.using, own_transaction=True
        )  # fmt: skip
        return Driver(
            saga=plan.saga, id=begun.id, using=plan.using, store=self.store, connection=connection, script=script,
            places=self.stage.places, memory=self.memory, without=without,
            signals=plan.signals,
        )  # fmt: skip

    @contextmanager
    def _page(self) -> Iterator[Connection]:
        """The connection, and nothing left on it of the story in the end."""
        if not self.plan.commit:
            with self._undone() as connection, _prepared(connection):
                yield connection
            return
        connection = self.store.connect()
        without = [id for (id,) in run(connection, query(PACKAGE, "known"), {})]
        try:
            yield connection
        finally:
            with connection.transaction():
                connection.execute("set local sagas.pruning = 'on'")
                run(connection, query(PACKAGE, "forget"), {"without": without})

    @contextmanager
    def _undone(self) -> Iterator[Connection]:
        """All that is written in the block is rolled back."""
        nested = getattr(self.plan.using, "begin_nested", None)
        if nested is not None:  # a session or connection of SQLAlchemy, which has to know what is undone
            savepoint = nested()
            try:
                yield self.store.connect()
            finally:
                savepoint.rollback()
            return
        try:
            with self.store.local() as transaction:
                yield transaction.connection
                raise _Over
        except _Over:
            return


@contextmanager
def _prepared(connection: Connection) -> Iterator[None]:
    """The engine's statements are long; planning each of them anew would take most of the time."""
    before, connection.prepare_threshold = connection.prepare_threshold, 1
    try:
        yield
    finally:
        connection.prepare_threshold = before


def _makes(input: Any) -> bool:
    """Whether it is a function that makes the input."""
    return callable(input) and not isinstance(input, type)
