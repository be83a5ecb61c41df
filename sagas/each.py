"""`for_each`: an external step that is done once for every item of a list, each time by a saga of its own.

Such a saga is a child of a definition that is made here: its one step is the body that was declared, so that retry,
unknown outcomes, compensation and parking are those of any external step.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from sagas.errors import DefinitionError
from sagas.options import check_body, check_known, check_options, check_plain, options_of
from sagas.plan import ChildrenPlan
from sagas.step import BELONGS_TO, R, S, Step, Undo

if TYPE_CHECKING:
    from sagas.context import RunContext
    from sagas.definition import Saga

T = TypeVar("T")
MOST_AT_ONCE: Final = 1000
MOST_ITEMS: Final = 100_000
OF_THE_WHOLE: Final = ("when", "after", "pivot")  # options of the step as a whole; the others are those of each item


@dataclass(frozen=True, slots=True)
class Tolerate:
    """How many items may come to nothing before the step has failed; None: all of them."""

    items: int | None = 0


FAIL: Final = Tolerate(0)
COLLECT: Final = Tolerate(None)


def tolerate(items: int) -> Tolerate:
    """So many items of a `for_each` step may fail; their place in the result is None.

    Raises:
        DefinitionError: it is no number of items.
    """
    if isinstance(items, bool) or not isinstance(items, int) or items < 1:
        raise DefinitionError(f"tolerate({items!r}): how many items may fail, from 1; use FAIL if none may")
    return Tolerate(items)


class Each(Step[S, R], Generic[S, T, R]):
    """A declared step that is done for each item. Its result is the list of their results, in order."""

    def __init__(
        self,
        body: Callable[..., Any],
        for_each: Callable[[Any], Iterable[T]],
        *,
        concurrency: int = 100,
        on_failure: Tolerate = FAIL,
        max_items: int = 10_000,
        **options: Any,
    ) -> None:
        label = getattr(body, "__name__", repr(body))
        what = f"step {label!r}"
        _check_number(what, "concurrency", concurrency, MOST_AT_ONCE)
        _check_number(what, "max_items", max_items, MOST_ITEMS)
        if not isinstance(on_failure, Tolerate):
            raise DefinitionError(f"{what}: on_failure={on_failure!r}: FAIL, COLLECT or tolerate(n)")
        if options.get("pivot"):
            raise DefinitionError(f"{what}: many items cannot decide a saga; put pivot=True on a step that follows")
        whole = {name: options[name] for name in OF_THE_WHOLE if name in options}
        none = {"compensate": options["compensate"]} if "compensate" in options else {}
        plan = ChildrenPlan(at_once=concurrency, tolerated=on_failure.items)
        super().__init__(_no_body, check_options(label, external=False, children=plan, **whole, **none))
        self.label, self.doing = label, check_body(body, what, "self", "item", external=True)
        self.items, self.max_items = check_plain(for_each, f"{what}: for_each="), max_items
        self.item_options = {name: value for name, value in options.items() if name not in OF_THE_WHOLE}
        self.undoing: tuple[Callable[..., Any], dict[str, Any]] | None = None
        self.asking: Callable[..., Any] | None = None
        self.item: Any = None  # the type of an item, once it is known
        self.items_type: Any = None  # and of a list of them
        self.of: type[Saga[Any]] | None = None  # the definition of an item's saga, then
        self.__doc__ = body.__doc__
        check_options(label, external=True, **self.item_options)

    def compensate(self, body: Any = None, /, **options: Any) -> Any:
        """Declare the undo of one item; it takes (self, item, result). See `Step.compensate`.

        Raises:
            DefinitionError: the step has one already, or the function does not fit.
        """
        what = f"the compensation of step {self.label!r}"
        check_known(f"{what}: compensate()", options, options_of(Step.compensate))

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            if self.undoing is not None:
                raise DefinitionError(f"{what}: there is one already; keep one of them")
            self.check_open(what)
            checked = check_body(
                function, what, "self", "item", "result", external=options.get("external") is not False
            )
            self.undoing = (checked, options)
            setattr(function, BELONGS_TO, self)
            return function

        return declare if body is None else declare(body)

    def resolve(self, body: Any, /) -> Any:
        """Declare how to find out what became of one item; it takes (self, item). See `Step.resolve`.

        Raises:
            DefinitionError: the step has one already, or the function does not fit.
        """
        what = f"the resolve of step {self.label!r}"
        if self.asking is not None:
            raise DefinitionError(f"{what}: there is one already; keep one of them")
        self.check_open(what)
        self.asking = check_body(body, what, "self", "item", external=True)
        setattr(body, BELONGS_TO, self)
        return body

    def define(self, item: Any, result: Any, undone: Any, *, final: bool) -> type[Saga[Any]]:
        """The definition of the sagas of the items.

        Args:
            item: the type of an item.
            result: the type of what comes of it.
            undone: the annotation of the result in the compensation.
            final: whether it follows the pivot, so that there is nothing to undo.
        """
        from sagas.definition import Saga

        assert self.owner is not None
        options = dict(self.item_options)
        if final:
            options["compensate"] = None
        step: Step[Any, Any] = Step(
            _of_item(self, self.doing, {"return": result}), check_options(self.name, external=True, **options)
        )
        body: dict[str, Any] = {self.name: step, "__module__": self.owner.__module__, "__doc__": self.doing.__doc__}
        body["of_items"] = True
        if self.undoing is not None:
            function, said = self.undoing
            undo: Undo[Any, Any] = step.compensate(**said)(_of_undo(self, function, {"result": undone}))
            body[f"undo_{self.name}"] = undo
        if self.asking is not None:
            body[f"ask_{self.name}"] = step.resolve(_of_item(self, self.asking, {}))
        self.item, self.items_type = item, types.GenericAlias(list, (item,))
        self.of = types.new_class(
            f"{self.owner.__name__}_{self.name}", (Saga[item],),
            {"name": f"{self.owner.saga_name}.{self.name}", "version": self.owner.saga_version}, body_of(body),
        )  # fmt: skip
        return self.of


def body_of(given: Mapping[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda namespace: namespace.update(given)


class ItemContext:
    """What the body of one item is told: of its own saga who it is, of the one that started it all that came before."""

    def __init__(self, own: RunContext) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    @property
    def input(self) -> Any:
        return self._own.parent.input  # type: ignore[attr-defined]

    def step_run(self, name: str) -> Any:
        return self._own.parent.step_run(name)  # type: ignore[attr-defined]


def _seen_by(each: Each[Any, Any, Any], run: Any) -> Any:
    assert each.owner is not None
    return each.owner._for_run(ItemContext(run._run))


def _of_item(each: Each[Any, Any, Any], function: Callable[..., Any], annotations: dict[str, Any]) -> Any:
    """A body of the item's saga that calls what was declared, with the item."""

    async def awaited(self: Any) -> Any:
        return await function(_seen_by(each, self), self.input)

    def plain(self: Any) -> Any:
        return function(_seen_by(each, self), self.input)

    return _named(awaited if inspect.iscoroutinefunction(function) else plain, function, annotations)


def _of_undo(each: Each[Any, Any, Any], function: Callable[..., Any], annotations: dict[str, Any]) -> Any:
    async def awaited(self: Any, result: Any) -> Any:
        return await function(_seen_by(each, self), self.input, result)

    def plain(self: Any, result: Any) -> Any:
        return function(_seen_by(each, self), self.input, result)

    return _named(awaited if inspect.iscoroutinefunction(function) else plain, function, annotations)


def _named(body: Any, function: Callable[..., Any], annotations: dict[str, Any]) -> Any:
    body.__name__, body.__qualname__, body.__doc__ = function.__name__, function.__qualname__, function.__doc__
    body.__annotations__ = annotations
    return body


def _check_number(what: str, option: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise DefinitionError(f"{what}: {option}={value!r} must be a whole number from 1 to {most:,}")


def _no_body(self: Any) -> Any:
    raise AssertionError("a for_each step has a body for each item only")
