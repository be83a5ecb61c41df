"""The rules of a saga class that show as soon as it is created. Those about types are in `sagas.compile`.

Every problem of a class is collected, so that one look at the error is enough to mend it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from sagas.plan import OnTimeout, OnUnknown
from sagas.step import BELONGS_TO, Step, Undo

STEP_NAME = re.compile(r"[a-z_][a-z0-9_]{0,63}")
SAGA_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,100}")
LONGEST_DEADLINE = timedelta(days=3650)
LARGEST_VERSION = 2**31 - 1  # an integer column

# what `self` has inside a body, now or in a later release
RUN_NAMES = frozenset(
    {
        "input",
        "id",
        "key",
        "idempotency_key",
        "attempt",
        "headers",
        "session",
        "heartbeat",
        "effect",
        "send",
        "aheartbeat",
        "aeffect",
    }
    | {"progress"}
)
# what the class has
CLASS_NAMES = frozenset(
    {"deadline", "of_items", "start", "get", "cancel", "astart", "aget", "acancel", "asend"}
    | {"plan", "steps", "saga_name", "saga_version", "input_type", "fingerprint"}
    | {"_run", "_scope", "_fingerprint", "_complete", "_compile", "_for_run"}
)

AnyStep = Step[Any, Any]


def check_identity(name: object, version: object) -> Iterator[str]:
    """Problems of the `name=` and `version=` of a class."""
    if not isinstance(name, str) or not SAGA_NAME.fullmatch(name):
        yield f"name={name!r} must be 1 to 100 letters, digits, '_', '.' or '-', for example 'shop.place_order'"
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= LARGEST_VERSION:
        yield f"version={version!r} must be a whole number from 1; begin with version=1"


def check_deadline(deadline: object) -> Iterator[str]:
    """Problems of the `deadline=` of a class."""
    if deadline is not None and not (isinstance(deadline, timedelta) and timedelta(0) < deadline <= LONGEST_DEADLINE):
        yield f"deadline={deadline!r} must be a timedelta above 0 and up to ten years"


def collect_steps(cls: type) -> dict[str, AnyStep]:
    """Steps in declared order, those of base classes first; one of the same name replaces in place."""
    steps: dict[str, AnyStep] = {}
    for base in reversed(cls.__mro__):
        steps.update({name: each for name, each in vars(base).items() if isinstance(each, Step)})
    return steps


def check_structure(cls: type, steps: Mapping[str, AnyStep]) -> Iterator[str]:
    """Problems that show without resolving any annotation."""
    if not steps:
        yield "it has no steps; decorate at least one method with @step or @external_step"
    yield from check_names(cls, steps)
    for name, each in steps.items():
        yield from _name_of(name, each)
    yield from _order(steps)
    pivots = [name for name, each in steps.items() if each.options.pivot]
    if len(pivots) > 1:
        yield f"it has {len(pivots)} pivots ({', '.join(pivots)}); one step decides, keep pivot=True there only"
    before_pivot = True
    for name, each in steps.items():
        before_pivot = before_pivot and not each.options.pivot
        yield from (_undoable(name, each) if before_pivot else _final(name, each, pivots[0]))


def _order(steps: Mapping[str, AnyStep]) -> Iterator[str]:
    """Problems of `after=`: it may name steps declared above only, so that there is no circle; and nothing may run
    beside the pivot, because it could be undone only in part."""
    needs: dict[str, set[str]] = {}  # directly or not
    last: str | None = None
    for name, each in steps.items():
        given = [last] if each.options.after is None and last else [step.name for step in each.options.after or ()]
        for needed in given:
            if needed not in needs or (each.options.after is not None and steps[needed] not in each.options.after):
                yield f"step {name!r}: after= names {needed!r}, which is not declared above it; move it up"
        needs[name] = set(given).union(*(needs.get(needed, set()) for needed in given))
        last = name
    for pivot in (name for name, each in steps.items() if each.options.pivot):
        for name in steps:
            if name != pivot and name not in needs[pivot] and pivot not in needs[name]:
                yield f"step {name!r} would run beside the pivot {pivot!r}; say after= so that it does not"


def check_names(cls: type, steps: Mapping[str, AnyStep]) -> Iterator[str]:
    """Names that hide something of the framework's or a step; abstract bases are checked for these too."""
    known = {id(each) for each in steps.values()}
    for name, value in vars(cls).items():
        ours = isinstance(value, (Step, Undo)) or hasattr(value, BELONGS_TO)
        if name in RUN_NAMES or (ours and name in CLASS_NAMES):
            yield f"{name!r} would hide {'self' if name in RUN_NAMES else 'the class'}'s own `{name}`; rename it"
        of = value.step if isinstance(value, Undo) else getattr(value, BELONGS_TO, None)
        if isinstance(of, Step) and id(of) not in known:
            yield f"step {of.label!r} is hidden by another definition of that name; give {name!r} another name"
    for name in steps:
        if not isinstance(getattr(cls, name), Step):
            yield f"step {name!r} of a base class is hidden by {getattr(cls, name)!r}; rename that"


def _name_of(name: str, each: AnyStep) -> Iterator[str]:
    if len(each.names) > 1:
        yield f"one step is bound to several names ({', '.join(each.names)}); keep one"
    if not STEP_NAME.fullmatch(name):
        yield f"step {name!r}: a step name is 1 to 64 of a-z, 0-9 and '_', no digit first; rename it"


def _undoable(name: str, each: AnyStep) -> Iterator[str]:
    if each.undo is None and not each.options.nothing_to_undo and each.options.children is None:
        yield (
            f"step {name!r} has no compensation; write one under @{name}.compensate, or say compensate=None in its "
            f"decorator if there is nothing to undo, or pivot=True at the step from which there is no way back"
        )
    if each.undo is not None and each.options.nothing_to_undo:
        yield f"step {name!r} says compensate=None and has a compensation; remove one of them"
    of = getattr(each, "of", None) if each.options.children is not None and each.undo is None else None
    decides = None if of is None or each.options.nothing_to_undo else _pivot_of(of)
    if of is not None and decides:
        yield (
            f"step {name!r} would be undone by undoing {of.__name__}, which cannot be undone from its pivot "
            f"{decides!r} on; say pivot=True if it decides this saga too, write a compensation under "
            f"@{name}.compensate, or say compensate=None if there is nothing to undo"
        )
    if each.options.on_unknown is OnUnknown.COMPENSATE and each.undo is None:
        yield f"step {name!r}: on_unknown=COMPENSATE needs a compensation that accepts UNKNOWN; write it or use PARK"


def _pivot_of(definition: Any) -> str | None:
    return next((step.name for step in definition.steps if step.options.pivot), None)


def _final(name: str, each: AnyStep, pivot: str) -> Iterator[str]:
    where = "is the pivot" if name == pivot else f"comes after the pivot {pivot!r}"
    if each.undo is not None:
        yield f"step {name!r} {where} and is never undone; remove its compensation or move pivot=True further down"
    if each.options.lock is not None and name != pivot:
        yield f"step {name!r} {where} and must not be refused; say lock= at the pivot or in a step before it"
    wait = each.options.wait
    if wait is not None and wait.signal and wait.on_timeout is OnTimeout.COMPENSATE:
        yield f"wait {name!r} {where}, from where there is no way back; use on_timeout=PARK or SKIP"
    if each.options.on_unknown is OnUnknown.COMPENSATE:
        yield f"step {name!r} {where} and is never undone; remove on_unknown=COMPENSATE"
