"""`@step` and `@external_step`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar, get_overloads, overload

from sagas.each import FAIL, Each, Tolerate
from sagas.errors import DefinitionError
from sagas.locks import SemanticLock
from sagas.options import UNSAID, Duration, Unsaid, check_known, check_options, options_of
from sagas.outcome import Skip
from sagas.plan import OnUnknown
from sagas.retry import Retry
from sagas.step import Awaited, R, S, Step


@overload
def step(body: Callable[[S], R], /) -> Step[S, R]: ...
@overload
def step(
    *,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    queue: str = "default",
    pivot: bool = False,
    compensate: Unsaid | None = UNSAID,
    when: Callable[[Any], bool | Skip] | None = None,
    after: Sequence[Step[Any, Any]] | None = None,
    priority: int = 0,
    lock: SemanticLock | None = None,
    max_deliveries: int = 5,
) -> Callable[[Callable[[S], R]], Step[S, R]]: ...
def step(body: Any = None, /, **options: Any) -> Any:
    """Declare a local step: one database transaction together with its log entry; one that raises did not happen.

    Args:
        body: the method, when used without arguments.
        retry: how often and how far apart to try; None is `Retry()`, after the pivot without end.
        timeout: how long a body may take, at most 30 days; None is the setting `TIMEOUT`.
        queue: which workers run it: 1 to 100 visible ASCII characters.
        pivot: whether it decides the saga: what comes before can be undone, what follows must succeed.
        compensate: None says that there is nothing to undo; else it is written below, under `@<name>.compensate`.
        when: a function of the saga, looked at once before the step begins; where it is false the step is skipped.
        after: the steps that have to have ended before it may begin, such as `[charge, reserve]`; steps that do not
            need each other run side by side. None: the one declared before it. `[]`: none.
        priority: from -100 to 100: of what is due in its queue the higher goes first, its compensation too.
        lock: what the saga is to hold from this step to its end, such as `semantic_lock("account:7")`.
        max_deliveries: begins in a row that never bring an answer, since each killed its worker, before it parks
            (1 to 1000).

    Raises:
        DefinitionError: an argument or the function does not fit.
    """
    only_external = sorted({"key_ttl", "on_unknown", "settle_after", "resolve"} & options.keys())
    if only_external:
        raise DefinitionError(
            f"@step({only_external[0]}=...): a local step has no unknown outcome, it committed or did not happen; "
            f"remove {', '.join(only_external)} or use @external_step"
        )
    check_known("step()", options, OF_LOCAL)
    return _decorator(body, external=False, options=options)


T = TypeVar("T")


class External(Protocol):
    """What `@external_step(...)` decorates with."""

    @overload
    def __call__(self, body: Callable[[S], Awaited[R]], /) -> Step[S, R]: ...
    @overload
    def __call__(self, body: Callable[[S], R], /) -> Step[S, R]: ...


class ForEach(Protocol[T]):
    """What `@external_step(for_each=...)` decorates with."""

    @overload
    def __call__(self, body: Callable[[S, T], Awaited[R]], /) -> Each[S, T, list[R]]: ...
    @overload
    def __call__(self, body: Callable[[S, T], R], /) -> Each[S, T, list[R]]: ...


@overload
def external_step(body: Callable[[S], Awaited[R]], /) -> Step[S, R]: ...
@overload
def external_step(body: Callable[[S], R], /) -> Step[S, R]: ...
@overload
def external_step(
    *,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    queue: str = "default",
    key_ttl: Duration | None = None,
    pivot: bool = False,
    compensate: Unsaid | None = UNSAID,
    when: Callable[[Any], bool | Skip] | None = None,
    after: Sequence[Step[Any, Any]] | None = None,
    priority: int = 0,
    lock: SemanticLock | None = None,
    on_unknown: OnUnknown = OnUnknown.PARK,
    settle_after: Duration = 60.0,
    max_deliveries: int = 5,
) -> External: ...
@overload
def external_step(
    *,
    for_each: Callable[[Any], Iterable[T]],
    concurrency: int = 100,
    on_failure: Tolerate = FAIL,
    max_items: int = 10_000,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    queue: str = "default",
    key_ttl: Duration | None = None,
    compensate: Unsaid | None = UNSAID,
    when: Callable[[Any], bool | Skip] | None = None,
    after: Sequence[Step[Any, Any]] | None = None,
    priority: int = 0,
    lock: SemanticLock | None = None,
    on_unknown: OnUnknown = OnUnknown.PARK,
    settle_after: Duration = 60.0,
    max_deliveries: int = 5,
) -> ForEach[T]: ...
def external_step(body: Any = None, /, **options: Any) -> Any:
    """Declare an external step: at least once, guarded by `self.idempotency_key`; its outcome can be unknown.

    Args:
        body: the method, when used without arguments; `async def` where many are to run at the same time.
        retry: how often and how far apart to try; None is `Retry()`, after the pivot without end.
        timeout: how long a body may take, at most 30 days; None is the setting `TIMEOUT`.
        queue: which workers run it: 1 to 100 visible ASCII characters.
        key_ttl: how long the other side remembers the idempotency key, at most 30 days; no attempt begins later. None:
            for ever.
        pivot: whether it decides the saga: what comes before can be undone, what follows must succeed.
        compensate: None says that there is nothing to undo; else it is written below, under `@<name>.compensate`.
        when: a function of the saga, looked at once before the step begins; where it is false the step is skipped.
        after: the steps that have to have ended before it may begin, such as `[charge, reserve]`; steps that do not
            need each other run side by side. None: the one declared before it. `[]`: none.
        priority: from -100 to 100: of what is due in its queue the higher goes first, its compensation too.
        lock: what the saga is to hold from this step to its end, such as `semantic_lock("account:7")`.
        on_unknown: what to do before the pivot when nobody can tell what happened: PARK for a person, or COMPENSATE.
        settle_after: how long after an undo as unknown the last look for a late effect is, at most 30 days.
        max_deliveries: begins in a row that never bring an answer, since each killed its worker, before it parks
            (1 to 1000).

        for_each: a function of the saga that returns a list, such as `lambda self: self.load.result`: the step is done
            once for each item, which the method takes after `self`. The result is the list of what was returned.
        concurrency: how many items are under way at the same time, at most (1 to 1000).
        on_failure: what becomes of the step when an item fails: FAIL turns back, COLLECT goes on without those that
            failed, `tolerate(n)` while they are not more than n. What failed is None in the result. An item fails by
            `Refused`, or where its `resolve` says `NOT_DONE` and its attempts are used up. After any other exception
            it parks, also with COLLECT, and the saga waits for it.
        max_items: with more of them the step fails before any is begun (at most 100,000).

    Raises:
        DefinitionError: an argument or the function does not fit.
    """
    if "for_each" not in options and (lacking := sorted(OF_ITEMS & options.keys() - OF_EXTERNAL)):
        raise DefinitionError(f"external_step() has the option {lacking[0]!r} only with for_each=")
    check_known("external_step()", options, OF_EXTERNAL | OF_ITEMS if "for_each" in options else OF_EXTERNAL)
    return _decorator(body, external=True, options=options)


OF_LOCAL = options_of(get_overloads(step)[1])
OF_EXTERNAL, OF_ITEMS = (options_of(each) for each in get_overloads(external_step)[2:])


def _decorator(body: Any, *, external: bool, options: dict[str, Any]) -> Any:
    def declare(function: Callable[[Any], Any]) -> Step[Any, Any]:
        if "for_each" in options:
            return Each(function, **options)
        name = getattr(function, "__name__", repr(function))
        return Step(function, check_options(name, external=external, **options))

    return declare if body is None else declare(body)
