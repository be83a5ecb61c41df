"""From a checked class to its plan: everything that needs annotations as types.

The text of an annotation may name a type that does not exist yet; `NameError` then says "not
now", and the caller tries again when all modules are imported.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ForwardRef, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from sagas.agreeing import check_compensation, check_resolve
from sagas.children import ONCE, Child
from sagas.each import Each
from sagas.errors import DefinitionError
from sagas.outcome import ContinueAs, NotDone, Unknown
from sagas.plan import OnTimeout, OnUnknown, Plan, StepPlan, UndoPlan
from sagas.retry import FOREVER
from sagas.step import Step, Undo
from sagas.storable import check_type, type_label
from sagas.waits import Wait

AnyStep = Step[Any, Any]


def compile_step(each: AnyStep, scope: Mapping[str, Any]) -> tuple[StepPlan, Any]:
    """Plan and result type of one step.

    Raises:
        DefinitionError: an annotation is missing or names a type that cannot be stored.
        NameError: an annotation names something that does not exist (yet).
    """
    if isinstance(each, Wait):
        check_type(each.of, where=f"signal {each.name!r}")
        return StepPlan(
            name=each.name, external=False, queue=each.options.queue, retry=each.options.retry, wait=each.options.wait,
            after=_names(each),
        ), each.of  # fmt: skip
    if isinstance(each, Each):
        return _compile_each(each, scope)
    if isinstance(each, Child):
        return _compile_child(each, scope), type(None) if each.result is None else each.result.result_type
    hints = resolved_hints(each.body, scope)
    if "return" not in hints:
        raise DefinitionError(f"step {each.name!r}: no return annotation; say what it returns, -> None if nothing")
    result_type, continues = _without_continue_as(hints["return"])
    if continues and each.owner is not None and each is not each.owner.steps[-1]:
        raise DefinitionError(f"step {each.name!r}: only the last step may return ContinueAs; move it to the end")
    if any(part is Unknown or part is NotDone for part in (result_type, *get_args(result_type))):
        raise DefinitionError(f"step {each.name!r}: a body returns its result or raises; only resolve says NOT_DONE")
    check_type(result_type, where=f"result of step {each.name!r}")
    for problem in _disagreements(each, result_type, scope):
        raise DefinitionError(f"step {each.name!r}: {problem}")
    options, undo = each.options, each.undo
    plan = StepPlan(
        name=each.name,
        external=options.external,
        queue=options.queue,
        retry=options.retry,
        timeout=options.timeout,
        key_ttl=options.key_ttl,
        pivot=options.pivot,
        has_resolve=each.resolver is not None,
        on_unknown=options.on_unknown,
        undo=None if undo is None else _compile_undo(each.name, undo, scope),
        settle_after=options.settle_after,
        max_deliveries=options.max_deliveries,
        priority=options.priority,
        has_when=options.when is not None,
        has_lock=options.lock is not None,
        after=_names(each),
        continues=continues,
    )
    if options.on_unknown is OnUnknown.COMPENSATE and not (plan.undo and plan.undo.accepts_unknown):
        raise DefinitionError(
            f"step {each.name!r}: on_unknown=COMPENSATE, but its compensation does not accept UNKNOWN; annotate its "
            f"result parameter `... | Unknown` and handle `is UNKNOWN`, or use on_unknown=PARK"
        )
    return plan, result_type


def _disagreements(each: AnyStep, result: Any, scope: Mapping[str, Any]) -> Iterator[str]:
    if each.resolver is not None:
        found = resolved_hints(each.resolver, scope).get("return", Any)
        yield from check_resolve(_without_continue_as(found)[0] if found is not ContinueAs else Any, result)
    if each.undo is not None:
        parameter = list(inspect.signature(each.undo.body).parameters)[1]
        accepted = resolved_hints(each.undo.body, scope).get(parameter, Any)
        yield from check_compensation(parameter, accepted, result)


def check_going_on(plan: Plan) -> None:
    """Nothing runs beside a step that goes on as another run: the saga ends with it.

    Raises:
        DefinitionError: something may.
    """
    final = plan.steps[-1]
    beside = [each.name for each in plan.steps[:-1] if final.name not in plan.following(each.name)]
    if final.continues and beside:
        raise DefinitionError(
            f"step {final.name!r}: it may return ContinueAs while {', '.join(beside)} may still run beside it; name in "
            f"after= what it needs, so that all others come before it"
        )


def _compile_child(each: Child[Any], scope: Mapping[str, Any]) -> StepPlan:
    """A step that starts another saga.

    Raises:
        DefinitionError: what is declared does not go together.
    """
    options, child = each.options, each.of
    retry = options.retry if options.retry_said else ONCE
    undo = None if each.undo is None else _compile_undo(each.name, each.undo, scope)
    if undo is None and not options.nothing_to_undo:
        undo = UndoPlan(external=False, queue="default", retry=retry, timeout=None, children=True)
    final = child.plan.steps[-1]
    if final.continues:
        raise DefinitionError(
            f"step {each.name!r}: {child.__name__} may go on as another of its kind (ContinueAs), so its end is not "
            f"the end of what it does; a child has to end"
        )
    if each.result is not None and _may_be_skipped(each.result.plan):
        raise DefinitionError(
            f"step {each.name!r}: result={child.__name__}.{each.result.name}, but that step may be skipped and then "
            f"has no result; name one that always ends with one"
        )
    return StepPlan(
        name=each.name, external=False, queue="default", retry=retry, pivot=options.pivot, undo=undo,
        has_when=options.when is not None, after=_names(each), children=options.children,
    )  # fmt: skip


def _compile_each(each: Each[Any, Any, Any], scope: Mapping[str, Any]) -> tuple[StepPlan, Any]:
    """A step that is done for each item, by sagas of a definition that is made here."""
    what, hints = f"step {each.name!r}", resolved_hints(each.doing, scope)
    parameter = list(inspect.signature(each.doing).parameters)[1]
    for wanted in (parameter, "return"):
        if wanted not in hints:
            raise DefinitionError(f"{what}: {wanted!r} has no annotation; say what an item is, and what is returned")
    item, result = hints[parameter], hints["return"]
    check_type(item, where=f"item of {what}")
    undone = None
    if each.undoing is not None:
        given = resolved_hints(each.undoing[0], scope)
        undone = given.get(list(inspect.signature(each.undoing[0]).parameters)[2])
        if undone is None:
            raise DefinitionError(f"the compensation of {what}: its last parameter has no annotation; give it {result}")
    assert each.owner is not None
    steps = each.owner.steps
    final = any(before.options.pivot for before in steps[: steps.index(each)])
    definition = each.of or each.define(item, result, undone, final=final)
    (done,) = definition.plan.steps
    undo = None
    if done.undo is not None:
        undo = UndoPlan(external=False, queue="default", retry=ONCE, timeout=None, children=True)
    plan = StepPlan(
        name=each.name, external=False, queue="default", retry=ONCE, undo=undo, after=_names(each),
        has_when=each.options.when is not None, children=each.options.children,
    )  # fmt: skip
    tolerant = each.options.children is not None and each.options.children.tolerated != 0
    return plan, list[Union[result, None]] if tolerant else list[result]  # type: ignore[valid-type] # noqa: UP007


def _may_be_skipped(plan: StepPlan) -> bool:
    return plan.has_when or (plan.wait is not None and plan.wait.on_timeout is OnTimeout.SKIP)


def _names(each: AnyStep) -> tuple[str, ...] | None:
    return None if each.options.after is None else tuple(needed.name for needed in each.options.after)


def _without_continue_as(annotated: Any) -> tuple[Any, bool]:
    """The stored part of a return annotation, and whether ContinueAs was in it."""
    if annotated is ContinueAs:
        return type(None), True
    parts = get_args(annotated)
    if get_origin(annotated) not in (Union, types.UnionType) or ContinueAs not in parts:
        return annotated, False
    return Union[tuple(part for part in parts if part is not ContinueAs)], True  # noqa: UP007 - made at run time


def _compile_undo(name: str, undo: Undo[Any, Any], scope: Mapping[str, Any]) -> UndoPlan:
    hints = resolved_hints(undo.body, scope)
    parameter = list(inspect.signature(undo.body).parameters)[1]
    if parameter not in hints:
        raise DefinitionError(
            f"the compensation of step {name!r}: parameter {parameter!r} has no annotation; give it the step's "
            f"result type, `... | Unknown` if it may be called with UNKNOWN"
        )
    accepted = hints[parameter]
    return UndoPlan(
        external=undo.external,
        queue=undo.queue,
        retry=undo.retry,
        timeout=undo.timeout,
        has_resolve=undo.resolver is not None,
        accepts_unknown=accepted is Unknown or Unknown in get_args(accepted),
    )


def resolved_hints(body: Any, scope: Mapping[str, Any]) -> dict[str, Any]:
    """Annotations of a function as types; `scope` holds names local to where its class was made."""
    try:
        return get_type_hints(body, localns=dict(scope), include_extras=True)
    except (TypeError, SyntaxError, AttributeError) as problem:
        raise DefinitionError(f"{body.__qualname__}: an annotation cannot be read: {problem}") from problem


def input_type(cls: type, root: type, scope: Mapping[str, Any]) -> Any:
    """The argument of `Saga[...]`, looked up through base classes.

    Raises:
        DefinitionError: there is none.
        NameError: it is written as text and names something that does not exist (yet).
    """
    found = _argument(cls, root)
    if found is None or isinstance(found, TypeVar):
        raise DefinitionError(f"no input type; write class {cls.__name__}(Saga[YourInput], ...), Saga[None] if none")
    if isinstance(found, (str, ForwardRef)):
        text = found if isinstance(found, str) else found.__forward_arg__
        holder = types.SimpleNamespace(__annotations__={"input": text})
        found = get_type_hints(holder, vars(sys.modules[cls.__module__]), dict(scope), include_extras=True)["input"]
    found = type(None) if found is None else found
    check_type(found, where="input")
    return found


def _argument(cls: type, root: type) -> Any:
    for base in vars(cls).get("__orig_bases__", cls.__bases__):
        origin = get_origin(base) or base
        if origin is root:
            return (get_args(base) or (None,))[0]
        if isinstance(origin, type) and issubclass(origin, root):
            found = _argument(origin, root)
            parameters = getattr(origin, "__parameters__", ())
            if found in parameters and get_args(base):
                return get_args(base)[parameters.index(found)]
            return found
    return None


def _beyond(plan: StepPlan) -> dict[str, Any]:
    """What only some steps have: a new feature leaves the fingerprints of definitions that do not use it alone."""
    wait = plan.wait and [plan.wait.signal, plan.wait.on_timeout]
    every = {"when": plan.has_when or None, "lock": plan.has_lock or None, "after": plan.after, "wait": wait}
    return {name: value for name, value in every.items() if value is not None}


def _child(each: AnyStep) -> dict[str, Any]:
    """Which saga a step starts: its name and version, and which result of it counts."""
    if isinstance(each, Each):
        return {"each": [type_label(each.item), each.of and each.of.fingerprint()]}
    if not isinstance(each, Child):
        return {}
    return {"child": [each.of.saga_name, each.of.saga_version, each.result and each.result.name]}


def steps_fingerprint(steps: Iterable[AnyStep]) -> str:
    """A hash (16 hex digits) of what must not change without a new version."""
    declared = [
        {
            "name": each.name,
            "external": each.plan.external,
            "pivot": each.plan.pivot,
            "resolve": each.plan.has_resolve,
            "on_unknown": str(each.plan.on_unknown),
            "result": type_label(each.result_type),
            **_beyond(each.plan),
            **_child(each),
            "undo": each.plan.undo
            and [each.plan.undo.external, each.plan.undo.has_resolve, each.plan.undo.accepts_unknown],
        }
        for each in steps
    ]
    return hashlib.sha256(msgspec.json.encode(declared, order="sorted")).hexdigest()[:16]


def patient_after_pivot(steps: Sequence[AnyStep]) -> tuple[StepPlan, ...]:
    """The plans of the steps. What follows the pivot has to succeed: unless told otherwise it is tried for ever.

    A wait is in the queue of the step before it (or after it, where it is the first), so that whoever runs the steps
    of a saga sees to its waits as well.
    """
    plans, passed = [], False
    queue = next((each.plan.queue for each in steps if each.plan.has_body), "default")
    for each in steps:
        patient = passed and not each.options.retry_said and each.plan.wait is None
        plan = replace(each.plan, retry=replace(each.plan.retry, max_attempts=FOREVER)) if patient else each.plan
        plans.append(plan if plan.has_body else _in_queue(plan, queue, final=passed or plan.pivot))
        queue, passed = plans[-1].queue, passed or plan.pivot
    return tuple(plans)


def _in_queue(plan: StepPlan, queue: str, *, final: bool) -> StepPlan:
    """A step that only waits, where whoever runs the steps beside it sees to it; nothing is undone after the pivot."""
    undo = plan.undo
    if undo is not None and undo.children:
        undo = None if final else replace(undo, queue=queue)
    return replace(plan, queue=queue, undo=undo)


def local_names(frame: Any) -> dict[str, Any]:
    """Names local to the function in which a class is made; annotations are text and could not be resolved without."""
    return {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)
