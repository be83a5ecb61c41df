"""`Saga`: the class users subclass to say which steps there are and how each is undone.

A subclass is checked when it is created and compiled to a `Plan`. If an annotation names a
type that does not exist yet, the checks that need it wait for `registry.load()` or first use.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from uuid import UUID

from sagas.compile import check_going_on, compile_step, input_type, local_names, patient_after_pivot, steps_fingerprint
from sagas.context import Missing, OnExisting, RunContext
from sagas.errors import DefinitionError
from sagas.plan import Plan
from sagas.registry import registry
from sagas.step import Step
from sagas.validate import check_deadline, check_identity, check_names, check_structure, collect_steps

if TYPE_CHECKING:
    from typing import Self

    from sagas.engine import SagaRun

I = TypeVar("I")  # noqa: E741 - the input
T = TypeVar("T")

__all__ = ["Missing", "OnExisting", "RunContext", "Saga"]


class _Late(Generic[T]):
    """A class attribute that is set once all types are known; asking earlier makes another try."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object | None, owner: type[Saga[Any]]) -> T:
        owner._complete()
        found: T = vars(owner)[self.name]
        return found


class Saga(Generic[I]):
    """A business process of steps that are undone in reverse order when one of them fails.

    Subclass it as `class PlaceOrder(Saga[OrderPlaced], name="shop.place_order", version=1)` and
    start it with `PlaceOrder.start(...)`. An instance is one body's view of one saga; only
    workers make them. A subclass without name and version is an abstract base.
    """

    __slots__ = ("_run",)

    saga_name: ClassVar[str]
    saga_version: ClassVar[int]
    deadline: ClassVar[timedelta | None] = None
    of_items: ClassVar[bool] = False  # its sagas are the items of a `for_each` step of another
    steps: ClassVar[tuple[Step[Any, Any], ...]] = ()
    plan: ClassVar[_Late[Plan]] = _Late()
    input_type: ClassVar[_Late[Any]] = _Late()
    _fingerprint: ClassVar[str] = ""
    _scope: ClassVar[dict[str, Any]] = {}  # local names where the class was made, until its types are known
    _run: RunContext

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        version: int | None = None,
        deadline: timedelta | None = None,
        **options: Any,
    ) -> None:
        super().__init_subclass__(**options)
        steps = collect_steps(cls)
        if name is None and version is None:
            if problems := list(check_names(cls, steps)):
                raise _definition_error(cls, problems)
            if hasattr(cls, "saga_name"):
                raise DefinitionError(
                    f"{cls.__qualname__}: a subclass of saga {cls.saga_name!r} needs a name and version of its own"
                )
            return
        problems = [*check_identity(name, version), *check_deadline(deadline), *check_structure(cls, steps)]
        if problems:
            raise _definition_error(cls, problems)
        assert name is not None
        assert version is not None
        cls.saga_name, cls.saga_version, cls.steps = name, version, tuple(steps.values())
        cls.deadline = deadline
        for each in cls.steps:
            each.owner = each.owner or cls
        cls._scope = local_names(sys._getframe(1))
        try:
            cls._compile()
        except NameError:
            cls.plan, cls.input_type = Saga.__dict__["plan"], Saga.__dict__["input_type"]
        registry.add(cls)

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        raise TypeError(f"{cls.__name__}(...) makes no saga; use {cls.__name__}.start(...) inside a transaction")

    @classmethod
    def _for_run(cls, context: RunContext) -> Self:
        """The `self` of step bodies (for workers)."""
        run = object.__new__(cls)
        object.__setattr__(run, "_run", context)
        return run

    @classmethod
    def _complete(cls) -> None:
        """Finish the checks that need all types.

        Raises:
            DefinitionError: there is a problem, or a type still does not exist.
        """
        if isinstance(vars(cls).get("plan"), Plan):
            return
        if not hasattr(cls, "saga_name"):
            raise DefinitionError(f"{cls.__qualname__} is abstract; give it a name and a version")
        try:
            cls._compile()
        except NameError as problem:
            raise _definition_error(
                cls,
                [
                    f"{problem}: an annotation names a type that does not exist at run time; import it (not only under "
                    f"TYPE_CHECKING) and define it at module level"
                ],
            ) from problem

    @classmethod
    def _compile(cls) -> None:
        problems: list[str] = []
        found: Any = None
        try:
            found = input_type(cls, Saga, cls._scope)
        except DefinitionError as problem:
            problems.append(str(problem))
        for each in cls.steps:
            try:
                each.compiled = each.compiled or compile_step(each, cls._scope)
            except DefinitionError as problem:
                problems.append(str(problem))
        if problems:
            raise _definition_error(cls, problems)
        plan = Plan(name=cls.saga_name, version=cls.saga_version, steps=patient_after_pivot(cls.steps))
        try:
            check_going_on(plan)
        except DefinitionError as problem:
            raise _definition_error(cls, [str(problem)]) from None
        cls._fingerprint = steps_fingerprint(cls.steps)
        cls.input_type = found
        cls.plan = plan  # type: ignore[assignment]
        cls._scope = {}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"self.{name} = ...: state kept on self is lost when the step is retried or the next one runs elsewhere; "
            f"return it as the step's result and read self.<step>.result"
        )

    @property
    def input(self) -> I:
        """The input given to `start()`."""
        given: I = self._run.input  # type: ignore[assignment]
        return given

    @property
    def id(self) -> UUID:
        """The saga's id."""
        return self._run.id

    @property
    def key(self) -> str | None:
        """The business key given to `start()`."""
        return self._run.key

    @property
    def idempotency_key(self) -> str:
        """What to send along with an outside request: the same in every attempt, another for the compensation."""
        return self._run.idempotency_key

    @property
    def attempt(self) -> int:
        """Which attempt this is; 1 for the first."""
        return self._run.attempt

    @property
    def headers(self) -> Mapping[str, str]:
        """Trace context and the like, as given to `start()`."""
        return self._run.headers

    @property
    def session(self) -> Any:
        """What the integration gives local steps to write with; None under Django.

        Raises:
            ConfigurationError: the step is external; it opens a session of its own where it needs the database.
        """
        return self._run.session

    @property
    def progress(self) -> Any:
        """What an earlier attempt of this external step gave to `heartbeat(progress=...)` last; None if nothing."""
        return self._run.progress

    def heartbeat(self, progress: Any = None) -> None:
        """Ask, in a long body, whether it may go on, and keep how far it has come.

        Args:
            progress: what the next attempt is to find in `self.progress`, should this one not end: plain JSON values
                (text, numbers, lists, dicts with text keys). Written at once, so call it about as often as you would
                commit. None: nothing to keep.

        Raises:
            LeaseLost: another worker may have taken over; stop without further side effects.
            InvalidInput: the progress cannot be stored.
            ConfigurationError: the step is local: what it has written is undone when it does not end.
        """
        self._run.heartbeat(progress)

    async def aheartbeat(self, progress: Any = None) -> None:
        """The twin of `heartbeat()` for `async def` bodies, which needs it only to keep a progress."""
        await self._run.aheartbeat(progress)

    def effect(self, name: str, call: Callable[[str], T], *, returns: type[T], request: object = None) -> T:
        """Have one side effect of an external step, unless an earlier attempt of the step had it already.

        Args:
            name: of the effect, different from the others in this step; part of its idempotency key.
            call: has the effect, given its idempotency key.
            returns: the type that `call` returns; stored like a step's result.
            request: what is asked for; the same name with another request is refused.

        Returns:
            What `call` returned, now or in an earlier attempt.

        Raises:
            EffectMismatch: an earlier attempt asked for something else under this name.
            LeaseLost: the compensation of the step has begun.
            Unstorable: the effect happened, and what came back cannot be stored.
            ConfigurationError: the step is local; its writes need no guard.
        """
        found: T = self._run.effect(name, call, returns=returns, request=request)
        return found

    async def aeffect(
        self, name: str, call: Callable[[str], Awaitable[T]], *, returns: type[T], request: object = None
    ) -> T:
        """The twin of `effect()` for `async def` bodies: `call` is awaited, and the database is not waited for."""
        found: T = await self._run.aeffect(name, call, returns=returns, request=request)
        return found

    @classmethod
    def start(
        cls,
        input: I,
        *,
        key: str | None = None,
        subject: object = None,
        using: Any = None,
        on_existing: OnExisting = OnExisting.RETURN,
        own_transaction: bool = False,
        headers: Mapping[str, str] | None = None,
        deadline: timedelta | datetime | None = None,
        priority: int = 0,
        ordering_key: str | None = None,
    ) -> SagaRun:
        """Start a saga in the caller's own transaction: both exist, or neither does.

        Args:
            input: what the steps need to know; stored as JSON.
            key: business key, unique per saga name, for example "order-7".
            subject: the model instance it is about.
            using: where the caller's transaction is open: a Django alias, a SQLAlchemy `Session` or `Connection`,
                or a psycopg connection; None: Django's default database.
            on_existing: what to do when the key is taken. `OnExisting.RETURN`: give that saga back, or raise if the
                input is another; `OnExisting.RAISE`: raise; `OnExisting.NEW_IF_COMPENSATED`: as the first, but begin
                the next run if that saga was undone.
            own_transaction: allow a call outside a transaction.
            headers: small text values handed to every step, such as trace context.
            deadline: how long the saga may take, or until when: then it turns back, if it still can. Default: what
                the class says (`class PlaceOrder(Saga[...], ..., deadline=timedelta(days=3))`).
            priority: from -100 to 100, added to that of its steps: of what is due in a queue the higher goes first.
            ordering_key: steps of sagas that share it are run one at a time in each queue, in the order of their start.

        Raises:
            NotInTransaction: there is no transaction and `own_transaction` is False.
            InvalidInput: the input cannot be stored; `path` names the field.
            PayloadTooLarge: it is too big.
            KeyConflict: the key is taken.
        """
        from sagas import engine

        return engine.start(
            cls,
            input,
            key=key,
            subject=subject,
            using=using,
            on_existing=on_existing,
            own_transaction=own_transaction,
            headers=headers,
            deadline=cls.deadline if deadline is None else deadline,
            priority=priority,
            ordering_key=ordering_key,
        )

    @classmethod
    async def astart(
        cls,
        input: I,
        *,
        key: str | None = None,
        subject: object = None,
        using: Any = None,
        on_existing: OnExisting = OnExisting.RETURN,
        own_transaction: bool = False,
        headers: Mapping[str, str] | None = None,
        deadline: timedelta | datetime | None = None,
        priority: int = 0,
        ordering_key: str | None = None,
    ) -> SagaRun:
        """The asynchronous twin of `start()`, with the same arguments, result and errors.

        Args:
            using: a SQLAlchemy `AsyncSession` or `AsyncConnection`, a psycopg `AsyncConnection`, or a Django alias,
                whose work is done in Django's thread for sync code.
        """
        from sagas import engine

        return await engine.astart(
            cls,
            input,
            key=key,
            subject=subject,
            using=using,
            on_existing=on_existing,
            own_transaction=own_transaction,
            headers=headers,
            deadline=cls.deadline if deadline is None else deadline,
            priority=priority,
            ordering_key=ordering_key,
        )

    @classmethod
    def get(cls, *, key: str | None = None, id: UUID | None = None, using: Any = None) -> SagaRun:
        """One saga as the outside sees it, by key or id.

        Raises:
            SagaNotFound: there is none.
        """
        from sagas import engine

        return engine.get(cls, key=key, id=id, using=using)

    @classmethod
    async def aget(cls, *, key: str | None = None, id: UUID | None = None, using: Any = None) -> SagaRun:
        """The asynchronous twin of `get()`."""
        from sagas import engine

        return await engine.aget(cls, key=key, id=id, using=using)

    @classmethod
    def cancel(cls, *, key: str | None = None, id: UUID | None = None, reason: str, using: Any = None) -> None:
        """Ask for a saga to be undone; a worker does it. After the pivot the request is logged and has no effect,
        and after the end only the worker logs it. `get().allowed_actions` says whether it would change something.

        Args:
            key: business key, or
            id: the saga's id.
            reason: stored in the log.
            using: as for `start()`.

        Raises:
            SagaNotFound: there is none.
        """
        from sagas import engine

        engine.cancel(cls, key=key, id=id, reason=reason, using=using)

    @classmethod
    async def acancel(cls, *, key: str | None = None, id: UUID | None = None, reason: str, using: Any = None) -> None:
        """The asynchronous twin of `cancel()`."""
        from sagas import engine

        await engine.acancel(cls, key=key, id=id, reason=reason, using=using)

    @classmethod
    def fingerprint(cls) -> str:
        """A hash (16 hex digits) of what must not change without a new version; retries, timeouts and queues may."""
        cls._complete()
        return cls._fingerprint


def _definition_error(cls: type, problems: list[str]) -> DefinitionError:
    lines = [f"{cls.__module__}.{cls.__qualname__}: {problem}" for problem in problems]
    return DefinitionError("\n".join(lines), problems=lines)
