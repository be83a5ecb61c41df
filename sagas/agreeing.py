"""Whether the functions of a step agree: what `resolve` finds is its result, which a compensation is called with.

Only what is surely wrong is named; what a type checker would have to know better is let through.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from sagas.outcome import NotDone, Unknown
from sagas.storable import type_label


def check_resolve(found: Any, result: Any) -> Iterator[str]:
    """What is wrong with the return annotation of a step's `resolve`.

    Args:
        found: that annotation.
        result: what the step returns.
    """
    for each in _parts(found):
        if each is not NotDone and not _passes(each, result):
            yield (
                f"its resolve may return {type_label(each)}, and the step returns {type_label(result)}; what is found "
                f"is the step's result: annotate {type_label(result)} | NotDone"
            )


def check_compensation(parameter: str, accepted: Any, result: Any) -> Iterator[str]:
    """What is wrong with the annotation of a compensation's parameter.

    Args:
        parameter: its name.
        accepted: its annotation.
        result: what the step returns.
    """
    wanted = [each for each in _parts(accepted) if each is not Unknown]
    if wanted and any(not any(_passes(each, one) for one in wanted) for each in _parts(result)):
        yield (
            f"its compensation takes {parameter}: {type_label(accepted)}, and is called with what the step returns, "
            f"{type_label(result)}; annotate it so"
        )


def _parts(annotated: Any) -> tuple[Any, ...]:
    if get_origin(annotated) is Annotated:
        return _parts(get_args(annotated)[0])
    if get_origin(annotated) in (Union, types.UnionType):
        return tuple(part for each in get_args(annotated) for part in _parts(each))
    return (type(None) if annotated is None else annotated,)


def _passes(value: Any, declared: Any) -> bool:
    """Whether what has one type may stand where another is declared."""
    return all(any(_fits(part, each) for each in _parts(declared)) for part in _parts(value))


def _fits(value: Any, declared: Any) -> bool:
    if Any in (value, declared) or isinstance(value, TypeVar) or isinstance(declared, TypeVar) or value == declared:
        return True
    one, other = get_origin(value) or value, get_origin(declared) or declared
    if Literal in (one, other) or not (isinstance(one, type) and isinstance(other, type)):
        return True  # somebody else's to judge
    if not (_inherits(one, other) or (one is int and other is float)):
        return False
    inner, wanted = get_args(value), get_args(declared)
    return len(inner) != len(wanted) or all(_passes(a, b) for a, b in zip(inner, wanted, strict=True))


def _inherits(one: type, other: type) -> bool:
    try:
        return issubclass(one, other)
    except TypeError:  # Protocols, and TypedDicts, of which at least a dict is wanted, are a type checker's to judge
        return issubclass(one, dict) or not issubclass(other, dict)
