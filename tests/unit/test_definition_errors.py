"""Wrong definitions are errors when the class is created, with a message that says what to change."""

from __future__ import annotations

import types
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from sagas import COMPENSATE, DefinitionError, NotDone, Retry, Saga, Step, Unknown, child_saga, external_step, step
from sagas.validate import CLASS_NAMES, RUN_NAMES

Body = dict[str, Any]


def saga(body: Body | None = None, *, name: Any = "test.wrong", version: Any = 1, of: Any = None) -> type[Saga[Any]]:
    """A saga class from a namespace."""
    base = Saga[of]
    namespace = {"__module__": __name__, "__qualname__": "Wrong", **(body or {})}
    for key, value in namespace.items():
        if isinstance(value, Step):
            value.label = key
    return types.new_class("Wrong", (base,), {"name": name, "version": version}, lambda ns: ns.update(namespace))


def does_nothing(self: Any) -> None: ...


def undoes(self: Any, result: None) -> None: ...


def undoes_unknown(self: Any, result: Unknown | None) -> None: ...


def looks(self: Any) -> NotDone | None: ...


def takes_item(self: Any, item: int) -> None: ...


def fine(**options: Any) -> Any:
    """A step that is right as it is."""
    return external_step(**{"compensate": None, **options})(does_nothing)


def with_undo(undo: Callable[..., Any] = undoes, /, **options: Any) -> Body:
    """A step and its compensation."""
    made: Any = external_step(**options)(does_nothing)
    return {"charge": made, "refund": made.compensate(undo)}


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: step(retries=3), "step() has no option 'retries'; attempts are counted: retry=Retry("),
        (lambda: step(max_retries=3), "step() has no option 'max_retries'; attempts are counted: retry="),
        (lambda: external_step(max_attempts=3), "external_step() has no option 'max_attempts'; write retry=Retry("),
        (lambda: external_step(tolerate=3, for_each=list), "has no option 'tolerate'; write on_failure=tolerate(...)"),
        (lambda: step(external=True), "step() has no option 'external'; it has after, compensate, "),
        (lambda: external_step(time_out=3), "external_step() has no option 'time_out'; did you mean 'timeout'?"),
        (lambda: external_step(resolve=looks), "external_step() has no option 'resolve'; it has "),
        (lambda: external_step(concurrency=3), "external_step() has the option 'concurrency' only with for_each="),
        (lambda: external_step(for_each=list, max_item=3), "has no option 'max_item'; did you mean 'max_items'?"),
        (lambda: child_saga(saga({"charge": fine()}), input=lambda self: None, timeout=3),
         "child_saga() has no option 'timeout'; it has "),
        (lambda: external_step(for_each=lambda self: [1])(takes_item).compensate(time_out=3),
         "compensate() has no option 'time_out'; did you mean 'timeout'?"),
    ],
)  # fmt: skip
def test_an_option_that_there_is_not(declare: Callable[[], Any], words: str) -> None:
    """It is named, with what was probably meant, or what there is; nothing is said of functions of ours."""
    with pytest.raises(DefinitionError) as caught:
        declare()
    assert words in str(caught.value) and "check_options" not in str(caught.value)


def test_the_helper_makes_a_right_one() -> None:
    """The tests below fail for the reason they name."""
    assert saga({"charge": fine()}).plan.steps[0].name == "charge"
    assert saga(with_undo(undoes_unknown, on_unknown=COMPENSATE)).plan.steps[0].undo


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "no steps"),
        ({"charge": external_step(does_nothing)}, "'charge' has no compensation.*@charge.compensate.*compensate=None"),
        ({"a": step(does_nothing), "b": fine(pivot=True)}, "'a' has no compensation"),
        (with_undo(pivot=True), "'charge' is the pivot and is never undone"),
        ({"a": fine(pivot=True), **with_undo()}, "'charge' comes after the pivot 'a'"),
        ({"a": fine(pivot=True), "b": fine(pivot=True)}, r"2 pivots \(a, b\)"),
        (with_undo(compensate=None), "compensate=None and has a compensation"),
        ({"a": fine(on_unknown=COMPENSATE)}, "on_unknown=COMPENSATE needs a compensation"),
        (with_undo(on_unknown=COMPENSATE), r"does not accept UNKNOWN.*\| Unknown"),
        ({"a": fine(pivot=True, on_unknown=COMPENSATE)}, "remove on_unknown=COMPENSATE"),
        ({"a": fine(pivot=True), "b": fine(on_unknown=COMPENSATE)}, "remove on_unknown=COMPENSATE"),
        ({"UPPER": fine()}, "step name"),
        ({"x" * 65: fine()}, "64"),
        ({"größe": fine()}, "step name"),
        ({"a": fine(), "input": 5}, "'input' would hide self's own"),
        ({"a": fine(), "session": does_nothing}, "'session' would hide"),
    ],
)
def test_structure(body: Body, words: str) -> None:
    """Rules about which steps there are and how they are undone."""
    with pytest.raises(DefinitionError, match=words) as caught:
        saga(body)
    assert "test_definition_errors.Wrong: " in str(caught.value)


@pytest.mark.parametrize(
    "name",
    sorted(RUN_NAMES | CLASS_NAMES),
)
def test_hidden_names(name: str) -> None:
    """No step or compensation may take a name that self or the class needs, now or in a later release."""
    with pytest.raises(DefinitionError, match=f"{name}.*rename"):
        saga({name: fine()})
    body = with_undo()
    with pytest.raises(DefinitionError, match=f"{name}.*rename"):
        saga({"charge": body["charge"], name: body["refund"]})


def test_a_definition_that_hides_its_step() -> None:
    """Reusing the step's name for its compensation or resolve would lose the step without a word."""
    undo = with_undo()["refund"]
    with pytest.raises(DefinitionError, match="'does_nothing' is hidden"):
        saga({"charge": undo, "other": fine()})
    resolved = fine()
    with pytest.raises(DefinitionError, match="'does_nothing' is hidden"):
        saga({"charge": resolved.resolve(looks), "other": fine()})


def test_one_step_two_names() -> None:
    """An alias would run the step twice."""
    one = fine()
    with pytest.raises(DefinitionError, match=r"several names \(a, b\)"):
        saga({"a": one, "b": one})


@pytest.mark.parametrize("name", ["", "x" * 101, "with space", "ü", 5, None, "a/b"])
def test_saga_name(name: Any) -> None:
    """Names go into keys, logs and metrics: short and plain."""
    with pytest.raises(DefinitionError, match="name="):
        saga({"a": fine()}, name=name)


@pytest.mark.parametrize("version", [0, -1, "1", 1.0, True, None, 2**31])
def test_version(version: Any) -> None:
    """Versions are whole numbers from 1."""
    with pytest.raises(DefinitionError, match="version="):
        saga({"a": fine()}, version=version)


@pytest.mark.parametrize("option", ["timeout", "key_ttl", "settle_after"])
@pytest.mark.parametrize(
    "value", [0, -1, float("inf"), float("nan"), timedelta(0), timedelta(days=31), 30 * 86400 + 1, True, "5"]
)
def test_durations(option: str, value: Any) -> None:
    """Above 0, at most 30 days, and no bool that happens to be a number."""
    with pytest.raises(DefinitionError, match=f"'does_nothing': {option}="):
        fine(**{option: value})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": ""}, "queue"),
        ({"queue": "x" * 101}, "queue"),
        ({"queue": "a b"}, "queue"),
        ({"queue": None}, "queue"),
        ({"retry": 3}, "retry"),
        ({"max_deliveries": 0}, "max_deliveries"),
        ({"max_deliveries": True}, "max_deliveries"),
        ({"max_deliveries": 1.5}, "max_deliveries"),
        ({"pivot": 1}, "pivot"),
        ({"on_unknown": "compensate"}, "on_unknown"),
        ({"compensate": does_nothing}, "@does_nothing.compensate"),
    ],
)
def test_options(options: dict[str, Any], words: str) -> None:
    """Each argument is checked where it is written."""
    with pytest.raises(DefinitionError, match=words):
        fine(**options)


@pytest.mark.parametrize("option", ["queue", "timeout", "retry", "external"])
def test_options_of_a_compensation(option: str) -> None:
    """A compensation's arguments are checked too."""
    with pytest.raises(DefinitionError, match=option):
        external_step(does_nothing).compensate(**{option: -1})(undoes)  # type: ignore[call-overload]


@pytest.mark.parametrize("options", [{"key_ttl": 5}, {"on_unknown": COMPENSATE}, {"settle_after": 5}, {"resolve": 1}])
def test_local_steps_have_no_unknown_outcome(options: dict[str, Any]) -> None:
    """A local step commits or did not happen: nothing to ask, nothing to remember."""
    with pytest.raises(DefinitionError, match=rf"@step\({next(iter(options))}=.*use @external_step"):
        step(**options)
    with pytest.raises(DefinitionError, match=r"local step.*use @external_step"):
        step(does_nothing).resolve(looks)
    with pytest.raises(DefinitionError, match=r"local compensation.*external=True"):
        step(does_nothing).compensate(undoes).resolve(undoes)


async def coroutine(self: Any) -> None: ...


async def coroutine_undo(self: Any, result: None) -> None: ...


async def async_generator(self: Any) -> AsyncIterator[int]:
    yield 1


def generator(self: Any) -> Iterator[int]:
    yield 1


def without_self() -> None: ...


def two(self: Any, more: int) -> None: ...


def optional(self: Any, more: int = 1) -> None: ...


def star(self: Any, *more: int) -> None: ...


def keyword(self: Any, *, more: int) -> None: ...


def test_async_bodies() -> None:
    """What is local cannot be async def, and the message says where to put it; what is external can."""
    words = r"a local step cannot be async def.*@external_step"
    with pytest.raises(DefinitionError, match=words):
        step(coroutine)
    with pytest.raises(DefinitionError, match=words):
        external_step(does_nothing).compensate(external=False)(coroutine_undo)
    with pytest.raises(DefinitionError, match=words):
        step(does_nothing).compensate(coroutine_undo)
    assert external_step(coroutine).awaited
    assert step(does_nothing).compensate(external=True)(coroutine_undo).awaited


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (async_generator, "yield"),
        (generator, "yield"),
        (without_self, r"exactly \(self\)"),
        (two, r"exactly \(self\)"),
        (optional, r"exactly \(self\)"),
        (star, r"exactly \(self\)"),
        (keyword, r"exactly \(self\)"),
        (partial(does_nothing), "not a function"),
        (staticmethod(does_nothing), "not a function"),
        (int, "not a function"),
    ],
)
def test_bodies(body: Any, words: str) -> None:
    """Bodies, compensations and resolves are plain functions with the parameters they are called with."""
    for decorate in (step, external_step(), external_step(does_nothing).resolve):
        with pytest.raises(DefinitionError, match=words):
            decorate(body)
    undo: Any = does_nothing if body in (two, optional) else body
    with pytest.raises(DefinitionError, match=words.replace("self", "self, result")):
        external_step(does_nothing).compensate(undo)
    with pytest.raises(DefinitionError, match=r"exactly \(self, result\)"):
        external_step(does_nothing).compensate(undoes).resolve(looks)  # type: ignore[arg-type]


def test_said_twice() -> None:
    """The first compensation or resolve would be lost."""
    one: Any = external_step(does_nothing)
    one.resolve(looks)
    undo = one.compensate(undoes)
    undo.resolve(undoes)
    for again in (partial(one.resolve, looks), partial(one.compensate, undoes), partial(undo.resolve, undoes)):
        with pytest.raises(DefinitionError, match="one already"):
            again()


def test_nothing_is_added_later() -> None:
    """Once the class exists its plan is made; a compensation added to it would never run."""
    made = saga({"charge": fine()})
    with pytest.raises(DefinitionError, match="write it into the class body"):
        made.charge.compensate(undoes)  # type: ignore[attr-defined]
    with pytest.raises(DefinitionError, match="write it into the class body"):
        made.charge.resolve(looks)  # type: ignore[attr-defined]


def unannotated(self):  # type: ignore[no-untyped-def]
    pass


def undo_unannotated(self, result):  # type: ignore[no-untyped-def]
    pass


def returns_any(self: Any) -> Any: ...


def returns_unknown(self: Any) -> Unknown | None: ...


def returns_callable(self: Any) -> Callable[[], int] | None: ...


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (unannotated, "no return annotation.*-> None"),
        (returns_any, "result of step 'a': Any cannot be stored"),
        (returns_callable, "Callable"),
        (returns_unknown, "only resolve says NOT_DONE"),
    ],
)
def test_result_types(body: Any, words: str) -> None:
    """A result is stored, so its type must be known and storable."""
    with pytest.raises(DefinitionError, match=words):
        saga({"a": external_step(compensate=None)(body)})


def test_compensation_parameter_needs_a_type() -> None:
    """Whether UNKNOWN may be passed is read from the annotation."""
    with pytest.raises(DefinitionError, match="'result' has no annotation"):
        saga(with_undo(undo_unannotated))


def test_input_type() -> None:
    """The input is stored, so its type must be given and storable."""
    with pytest.raises(DefinitionError, match=r"input: Callable.* cannot be stored"):
        saga({"a": fine()}, of=Callable[[], int])
    with pytest.raises(DefinitionError, match=r"Saga\[YourInput\]"):

        class NoInput(Saga, name="test.no_input", version=1):  # type: ignore[type-arg]
            a = fine()


def test_all_problems_at_once() -> None:
    """One look at the error is enough to mend the class."""
    with pytest.raises(DefinitionError) as caught:
        saga({"a": external_step(does_nothing), "B": fine(), "id": fine()}, name="no good", version=0)
    assert len(caught.value.problems) == 5
    with pytest.raises(DefinitionError) as caught:
        saga({"a": fine(), **with_undo(undo_unannotated)}, of=Any)
    assert len(caught.value.problems) == 2


def test_half_a_name() -> None:
    """Name or version alone is no abstract base but an oversight, and so is a saga's nameless subclass."""
    with pytest.raises(DefinitionError, match="version=None"):

        class A(Saga[None], name="test.half"):
            a = fine()

    made = saga({"charge": fine()})
    with pytest.raises(DefinitionError, match="needs a name and version of its own"):

        class B(made):  # type: ignore[misc, valid-type]
            pass


def test_abstract_bases_are_checked_for_hidden_names() -> None:
    """A base is wrong where it is written, not first where it is used."""
    with pytest.raises(DefinitionError, match="'input' would hide"):

        class Base(Saga[int]):
            input = fine()


def test_a_base_step_must_not_be_hidden() -> None:
    """A plain attribute over an inherited step would remove it without a word."""

    class Base(Saga[None]):
        charge = fine()

    with pytest.raises(DefinitionError, match="'charge' of a base class is hidden"):

        class P(Base, name="test.hides", version=1):
            charge = 5


def test_retry_is_accepted() -> None:
    """The error tests are not about Retry itself."""
    assert saga({"a": fine(retry=Retry(max_attempts=1))}).plan.steps[0].retry.max_attempts == 1


def test_reserved_names_are_complete() -> None:
    """Whatever Saga has is reserved, so that a later method cannot be forgotten."""
    own = {name for name in vars(Saga) if not name.startswith("__")}
    assert own <= RUN_NAMES | CLASS_NAMES
