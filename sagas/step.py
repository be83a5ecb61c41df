"""A declared step, its compensation, and one saga's run of it. Made by the decorators in `sagas.decorators`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload
from uuid import UUID

from sagas.errors import DefinitionError, NoResult
from sagas.options import Duration, StepOptions, check_body, check_queue, check_retry, check_seconds
from sagas.outcome import NotDone
from sagas.plan import StepPlan
from sagas.retry import Retry
from sagas.uncalled import Uncalled

if TYPE_CHECKING:
    from typing import Self

    from sagas.definition import Saga

S = TypeVar("S", bound="Saga[Any]")
R = TypeVar("R")

Awaited = Coroutine[Any, Any, R]  # what an `async def` that returns R gives

BELONGS_TO = "__sagas_step__"  # attribute of resolve functions: the step they answer for


@dataclass(frozen=True, kw_only=True)
class StepRun(Uncalled, Generic[R]):
    """One saga's run of a step: what `self.<step>` is inside a step body."""

    name: str
    status: str
    attempts: int  # bodies begun
    idempotency_key: str = ""  # of the step itself, for a compensation that has to name it to the other side
    load: Callable[[], R] | None = None  # reads the stored result; None: there is none yet

    @property
    def result(self) -> R:
        """What the step returned.

        Raises:
            NoResult: it has not returned (yet).
        """
        if self.load is None:
            raise NoResult(
                f"step {self.name!r} has no result: it is {self.status!r} after {self.attempts} attempt(s); "
                f"read results of earlier steps only, and in a compensation the one it is given"
            )
        return self.load()

    def _named(self) -> str:
        return f"step {self.name!r}"


class Undo(Uncalled, Generic[S, R]):
    """The compensation of a step. Made by `@<step>.compensate`."""

    def __init__(
        self,
        step: Step[S, R],
        body: Callable[[S, R], Awaited[None] | None],
        *,
        retry: Retry | None,
        timeout: Duration | None,
        queue: str | None,
        external: bool | None,
    ) -> None:
        what = f"the compensation of step {step.label!r}"
        self.step = step
        self.external = step.options.external if external is None else external
        self.body = check_body(body, what, "self", "result", external=self.external is True)
        self.awaited = inspect.iscoroutinefunction(body)
        self.asks_awaited = False
        self.retry = check_retry(step.label, retry)
        self.timeout = step.options.timeout if timeout is None else check_seconds(step.label, "timeout", timeout)
        self.queue = step.options.queue if queue is None else check_queue(step.label, queue)
        self.resolver: Callable[[S, R], Awaited[NotDone | None] | NotDone | None] | None = None
        if not isinstance(self.external, bool):
            raise DefinitionError(f"{what}: external={external!r} must be True or False")

    def _named(self) -> str:
        return f"the compensation of step {self.step.label!r}"

    @overload
    def resolve(self, body: Callable[[S, R], NotDone | None], /) -> Callable[[S, R], NotDone | None]: ...
    @overload
    def resolve(
        self, body: Callable[[S, R], Awaited[NotDone | None]], /
    ) -> Callable[[S, R], Awaited[NotDone | None]]: ...
    def resolve(self, body: Any, /) -> Any:
        """Declare how to find out whether the compensation happened: return None (yes) or NOT_DONE, or raise Undecided.

        Raises:
            DefinitionError: the compensation is local, has one already, or the function does not fit.
        """
        what = f"the resolve of the compensation of step {self.step.label!r}"
        if not self.external:
            raise DefinitionError(
                f"{what}: a local compensation either committed or did not happen; remove it, "
                f"or say @{self.step.label}.compensate(external=True)"
            )
        if self.resolver is not None:
            raise DefinitionError(f"{what}: there is one already; keep one of them")
        self.step.check_open(what)
        self.resolver = check_body(body, what, "self", "result", external=True)
        self.asks_awaited = inspect.iscoroutinefunction(body)
        setattr(body, BELONGS_TO, self.step)
        return body


class Step(Uncalled, Generic[S, R]):
    """A declared step. On the class the definition itself, inside a body this saga's run of it (`StepRun`)."""

    def __init__(self, body: Callable[[S], Awaited[R] | R], options: StepOptions) -> None:
        self.label: str = getattr(body, "__name__", repr(body))
        self.body = check_body(body, f"step {self.label!r}", "self", external=options.external)
        self.awaited = inspect.iscoroutinefunction(body)  # also while a test has put something else in its place
        self.asks_awaited = False  # the same of its resolver
        self.options = options
        self.undo: Undo[S, R] | None = None
        self.resolver: Callable[[S], Awaited[R | NotDone] | R | NotDone] | None = None
        self.names: list[str] = []  # what class bodies bound it to; more than one is an error there
        self.owner: type[Saga[Any]] | None = None
        self.compiled: tuple[StepPlan, Any] | None = None  # plan and result type, once its annotations are known
        self.__doc__ = body.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        # errors raised here would be wrapped in RuntimeError before Python 3.12, so only take a note
        self.names.append(name)

    def _named(self) -> str:
        return f"step {self.label!r}"

    def __repr__(self) -> str:
        owner = self.owner.__qualname__ if self.owner else "?"
        return f"<{'external ' if self.options.external else ''}step {owner}.{self.label}>"

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> StepRun[R]: ...
    def __get__(self, instance: Any, owner: type) -> Self | StepRun[R]:
        if instance is None:
            return self
        run: StepRun[R] = instance._run.step_run(self.name)
        return run

    @property
    def name(self) -> str:
        """Its name in the saga: the attribute it is bound to."""
        return self.names[0] if self.names else self.label

    @property
    def external(self) -> bool:
        """Whether it touches a system outside this database."""
        return self.options.external

    @property
    def plan(self) -> StepPlan:
        """The step as the state machine sees it."""
        return self._compiled()[0]

    @property
    def result_type(self) -> Any:
        """The return annotation of its body, resolved."""
        return self._compiled()[1]

    def result_of(self, *, key: str | None = None, id: UUID | None = None, using: Any = None) -> R:
        """What this step returned in one saga, read from outside: `PlaceOrder.ship.result_of(key="order-7")`.

        It stays readable when the step has been undone since.

        Args:
            key: business key of the saga (its latest run), or
            id: its id.
            using: as for `Saga.start()`; no transaction needs to be open.

        Raises:
            NoResult: it has not returned (yet), or was skipped.
            SagaNotFound: there is no such saga.
            PayloadLocked: the result is sealed, and this process cannot open it.
            CodecError: it is not of the declared type, as where another version of the saga stored it.
        """
        from sagas import results

        return results.result_of(self, key=key, id=id, using=using)

    async def aresult_of(self, *, key: str | None = None, id: UUID | None = None, using: Any = None) -> R:
        """The asynchronous twin of `result_of()`."""
        from sagas import results

        return await results.aresult_of(self, key=key, id=id, using=using)

    def results_of(self, ids: Iterable[UUID], *, using: Any = None) -> dict[UUID, R]:
        """What this step returned in several sagas, by their ids, with one statement; without those where it has not.

        Args:
            ids: of the sagas.
            using: as for `Saga.start()`; no transaction needs to be open.

        Raises:
            PayloadLocked: a result is sealed, and this process cannot open it.
            CodecError: one is not of the declared type.
        """
        from sagas import results

        return results.results_of(self, ids, using=using)

    async def aresults_of(self, ids: Iterable[UUID], *, using: Any = None) -> dict[UUID, R]:
        """The asynchronous twin of `results_of()`."""
        from sagas import results

        return await results.aresults_of(self, ids, using=using)

    def _compiled(self) -> tuple[StepPlan, Any]:
        if self.compiled is None:
            if self.owner is None:
                raise DefinitionError(f"step {self.label!r} belongs to no saga; declare it in the body of a Saga class")
            self.owner._complete()
        assert self.compiled is not None
        return self.compiled

    def check_open(self, what: str) -> None:
        """Refuse additions once the class exists: its plan is made, and other sagas may share the step."""
        if self.owner is not None:
            raise DefinitionError(f"{what}: {self.owner.__qualname__} exists already; write it into the class body")

    @overload
    def compensate(self, body: Callable[[S, R], Awaited[None] | None], /) -> Undo[S, R]: ...
    @overload
    def compensate(
        self,
        *,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        queue: str | None = None,
        external: bool | None = None,
    ) -> Callable[[Callable[[S, R], Awaited[None] | None]], Undo[S, R]]: ...
    def compensate(
        self,
        body: Callable[[S, R], Awaited[None] | None] | None = None,
        *,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        queue: str | None = None,
        external: bool | None = None,
    ) -> Undo[S, R] | Callable[[Callable[[S, R], Awaited[None] | None]], Undo[S, R]]:
        """Declare the semantic undo of this step (Garcia-Molina & Salem, "Sagas", 1987), bare or with arguments.

        It is given the step's stored result. Annotate that parameter `R | Unknown` to be called
        with `UNKNOWN` too, when nobody can tell whether the step happened.

        Args:
            retry: how often to try; None is `Retry()`, not that of the step.
            timeout: how long a body may take; None: that of the step.
            queue: which workers run it; None: that of the step.
            external: whether it touches another system; None: like its step.

        Raises:
            DefinitionError: the step has one already, or the function does not fit.
        """

        def declare(function: Callable[[S, R], Awaited[None] | None]) -> Undo[S, R]:
            what = f"the compensation of step {self.label!r}"
            if self.undo is not None:
                raise DefinitionError(f"{what}: there is one already; keep one of them")
            self.check_open(what)
            self.undo = Undo(self, function, retry=retry, timeout=timeout, queue=queue, external=external)
            return self.undo

        return declare if body is None else declare(body)

    @overload
    def resolve(self, body: Callable[[S], R | NotDone], /) -> Callable[[S], R | NotDone]: ...
    @overload
    def resolve(self, body: Callable[[S], Awaited[R | NotDone]], /) -> Callable[[S], Awaited[R | NotDone]]: ...
    def resolve(self, body: Any, /) -> Any:
        """Declare how to find out what became of an attempt: return its result or NOT_DONE, or raise Undecided.

        Raises:
            DefinitionError: the step is local, has one already, or the function does not fit.
        """
        what = f"the resolve of step {self.label!r}"
        if not self.options.external:
            raise DefinitionError(
                f"{what}: a local step either committed or did not happen; remove it or use @external_step"
            )
        if self.resolver is not None:
            raise DefinitionError(f"{what}: there is one already; keep one of them")
        self.check_open(what)
        self.resolver = check_body(body, what, "self", external=True)
        self.asks_awaited = inspect.iscoroutinefunction(body)
        setattr(body, BELONGS_TO, self)
        return body
