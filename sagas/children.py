"""`child_saga`: a step that starts another saga and waits for its end.

A saga that waits for its children costs one outbox row, like any wait. What its children have completed is part of the
step: when it is undone, they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_overloads, overload

from sagas.errors import DefinitionError
from sagas.options import UNSAID, Unsaid, check_known, check_options, check_plain, options_of
from sagas.outcome import Skip
from sagas.plan import ChildrenPlan
from sagas.retry import Retry
from sagas.step import Step

if TYPE_CHECKING:
    from sagas.definition import Saga

I = TypeVar("I")  # noqa: E741 - the input of the child
R = TypeVar("R")
ONCE = Retry(max_attempts=1)


class Child(Step[Any, R]):
    """A declared child. Made by `child_saga`."""

    def __init__(
        self,
        of: type[Saga[Any]],
        given: Callable[[Any], Any],
        result: Step[Any, R] | None,
        plan: ChildrenPlan,
        **options: Any,
    ) -> None:
        super().__init__(_no_body, check_options("child_saga", external=False, children=plan, **options))
        self.of, self.given, self.result = of, given, result

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        self.label = self.names[0]


@overload
def child_saga(
    of: type[Saga[I]],
    *,
    input: Callable[[Any], I],
    result: Step[Any, R],
    retry: Retry | None = None,
    pivot: bool = False,
    compensate: Unsaid | None = UNSAID,
    when: Callable[[Any], bool | Skip] | None = None,
    after: Sequence[Step[Any, Any]] | None = None,
) -> Child[R]: ...
@overload
def child_saga(
    of: type[Saga[I]],
    *,
    input: Callable[[Any], I],
    result: None = None,
    retry: Retry | None = None,
    pivot: bool = False,
    compensate: Unsaid | None = UNSAID,
    when: Callable[[Any], bool | Skip] | None = None,
    after: Sequence[Step[Any, Any]] | None = None,
) -> Child[None]: ...
def child_saga(
    of: Any, *, input: Callable[[Any], Any], result: Any = None, retry: Retry | None = None, **options: Any
) -> Child[Any]:
    """Declare that another saga is started here, and that this one goes on when that has completed.

    Args:
        of: the saga class to start.
        input: a function of the saga that returns what the child is given (`lambda self: Pay(self.input.amount)`).
        result: the step of the child whose result is this step's result, such as `TakePayment.charge`; None: none.
        retry: how often to start it, should it be undone or cancelled, and how far apart; default: once, and after
            the pivot until it completes.
        pivot: whether it decides this saga; a child that has a pivot does so, unless there is nothing to undo.
        compensate: None says that there is nothing to undo: what the child has completed then stays. Otherwise the
            child is undone, or what is written under `@<name>.compensate` is called with the result.
        when: a function of the saga, looked at once before the child is started; where it is false it is skipped.
        after: the steps that have to have ended; None: the one declared before it.

    Raises:
        DefinitionError: an argument is not usable.
    """
    check_known("child_saga()", options, options_of(get_overloads(child_saga)[0]))
    if not (inspect.isclass(of) and getattr(of, "saga_name", None) is not None):
        raise DefinitionError(
            f"child_saga({of!r}): a Saga class with a name and a version; a saga cannot be its own child"
        )
    definition: type[Saga[Any]] = cast("type[Saga[Any]]", of)
    steps = definition.steps
    if result is not None and result not in steps:
        raise DefinitionError(
            f"child_saga({definition.__name__}, result={result!r}): not a step of {definition.__name__}; write for "
            f"example result={definition.__name__}.{steps[-1].name}"
        )
    given = check_plain(input, f"child_saga({definition.__name__}, input=...)")
    return Child(definition, given, result, ChildrenPlan(), retry=retry, **options)


def _no_body(self: Any) -> Any:
    raise AssertionError("a child_saga has no body")
