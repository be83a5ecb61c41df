"""The kit for your own tests: start, drain, move the clock, answer for the other side, look.

Nothing here needs a broker, a worker process, a thread or a second connection. `Kit` is what the fixture `sagas`
gives; the functions below it are the same for tests without fixtures.
"""

from __future__ import annotations

import unittest
from collections.abc import Collection
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from sagas import engine
from sagas.definition import Saga
from sagas.engine import SagaRun
from sagas.errors import SagaNotFound
from sagas.states import Status
from sagas.testing import asserts, since
from sagas.testing.asserts import ANY, Started, database_time
from sagas.testing.borrowed import BorrowedStore, borrow, check_using
from sagas.testing.draining import MOVES, ONE_DAY, Drain, Ran
from sagas.testing.faking import Answers, answers, forget_answers
from sagas.testing.moving import Clock
from sagas.testing.stories import look
from sagas.testing.stories import story as tell

I = TypeVar("I")  # noqa: E741 - the input
SagaClass = type[Saga[Any]]

MOST_STORIES = 5  # in the report of a test that failed

clock = Clock(database_time)
_drained: list[tuple[BorrowedStore, tuple[UUID, ...]]] = []  # in the present test


class Kit:
    """The kit, for one database.

    Args:
        using: as for `start()`: a Django alias, or a session or connection; None: the default alias.
    """

    def __init__(self, using: Any = None) -> None:
        self._using = using

    @property
    def using(self) -> Any:
        """What it was given; refused in the kit's own words where it can do nothing with it."""
        check_using(self._using)
        return self._using

    @property
    def clock(self) -> Clock:
        """The time that sagas go by; one clock for the whole process."""
        clock.read_from(lambda: database_time(self.using))
        return clock

    def drain(
        self,
        *,
        skip: timedelta = ONE_DAY,
        only: Collection[SagaRun | UUID] | None = None,
        check: bool = True,
        moves: int = MOVES,
    ) -> list[Ran]:
        """Run everything that is due, and what becomes due, until all sagas have finished or wait for a signal.

        Args:
            skip: how far the clock may be moved forward altogether, past retries and other waits;
                `timedelta(0)`: only what is due now.
            only: the sagas to run; None: all that the connection sees.
            check: whether a saga that is parked or has work left is an error.
            moves: how many steps and requests may be begun.

        Returns:
            What was run, in order.

        Raises:
            Unfinished: a saga is parked or has work left; the message tells the story of each.
            ConfigurationError: the connection is not one of psycopg 3; or, without `only`, there are open sagas in
                the database that were committed before the test began. Nothing was run then.
        """
        ids = None if only is None else [each if isinstance(each, UUID) else each.id for each in only]
        draining = Drain(store=borrow(self.using), clock=self.clock, skip=skip, only=ids, moves=moves)
        try:
            ran = draining.run()
        finally:
            _drained.append((draining.store, tuple(draining.touched)))
        if check:
            draining.check()
        return ran

    def run(
        self,
        definition: type[Saga[I]],
        input: I,
        *,
        key: str | None = None,
        subject: object = None,
        skip: timedelta = ONE_DAY,
        check: bool = True,
    ) -> SagaRun:
        """Start a saga and run it, and no other one, to its end; returns it as it stands then.

        Args:
            definition: its class.
            input: as for `start()`, like `key` and `subject`.
            key: its business key.
            subject: what it is about.
            skip: as for `drain()`, like `check`.
            check: whether it has to finish.

        Raises:
            Unfinished: it is parked or has work left.
        """
        begun = definition.start(input, key=key, subject=subject, using=self.using, own_transaction=True)
        self.drain(skip=skip, only=[begun], check=check)
        return definition.get(id=begun.id, using=self.using)

    def answers(self, definition: SagaClass) -> Answers:
        """What steps, compensations and resolves answer in place of what they do. See `sagas.testing.faking`."""
        return answers(definition)

    def started(self, definition: SagaClass) -> list[Started]:
        """The sagas of a class that were started, also in the transaction that is open."""
        return asserts.started(definition, using=self.using)

    def assert_started(
        self, definition: SagaClass, *, key: str | None = None, input: Any = ANY, times: int | None = None
    ) -> Started:
        """See that a saga was started, with this key, this input, so many times; returns the first that fits."""
        return asserts.assert_started(definition, key=key, input=input, times=times, using=self.using)

    def assert_not_started(self, definition: SagaClass, *, key: str | None = None, input: Any = ANY) -> None:
        """See that no such saga was started."""
        asserts.assert_not_started(definition, key=key, input=input, using=self.using)

    def assert_status(self, saga: SagaRun | UUID, status: Status | str) -> SagaRun:
        """See where a saga stands now, such as "completed"; returns it as it stands.

        Raises:
            AssertionError: it stands elsewhere; the message tells its story, with the traceback of its last error.
            ValueError: there is no such status.
        """
        wanted = Status(status)
        found = engine.find(None, id=saga if isinstance(saga, UUID) else saga.id, using=self.using)
        if found.status != wanted:
            raise AssertionError(f"wanted: {wanted.value}, but {self.story(found)}")
        return found

    def story(self, saga: SagaRun | UUID) -> str:
        """What became of a saga, in words.

        Raises:
            SagaNotFound: there is none.
        """
        id = saga if isinstance(saga, UUID) else saga.id
        found = look(borrow(self.using).connect(), [id])
        if not found:
            raise SagaNotFound(f"no saga {id} on the connection of this test")
        return tell(found[0])

    def reset(self) -> None:
        """The database clock again, and all bodies as they are declared. The plugin does it after each test."""
        reset()


class SagasMixin(unittest.TestCase):
    """Put it before Django's `TestCase`: `self.sagas` is the kit, and is reset after each test."""

    def setUp(self) -> None:
        since.begin()  # what the other base classes prepare is the test's
        self.addCleanup(reset)
        self.sagas = Kit()
        super().setUp()


def drain(*, using: Any = None, **options: Any) -> list[Ran]:
    """Run everything that is due and becomes due. See `Kit.drain`."""
    return Kit(using).drain(**options)


def run_saga(definition: type[Saga[I]], input: I, *, using: Any = None, **options: Any) -> SagaRun:
    """Start a saga and run it to its end. See `Kit.run`."""
    return Kit(using).run(definition, input, **options)


def stories() -> str:
    """What became of the sagas that were drained in the present test; nothing where that cannot be read any more."""
    told: dict[UUID, str] = {}
    for store, ids in _drained:
        try:
            told |= {seen.id: tell(seen) for seen in look(store.connect(), ids)}
        except Exception:  # the test has failed already, and perhaps its transaction with it
            continue
    left = len(told) - MOST_STORIES
    return "\n\n".join([*list(told.values())[:MOST_STORIES], *([f"... and {left} more"] if left > 0 else [])])


def reset() -> None:
    """The database clock again, and all bodies as they are declared."""
    clock.reset()
    forget_answers()
    _drained.clear()
