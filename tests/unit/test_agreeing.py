"""What the functions of a step say of its result has to agree: what is surely wrong is refused with the class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, TypedDict

import pytest

from sagas import DefinitionError, NotDone, Saga, Sensitive, Unknown, external_step
from sagas.agreeing import check_compensation, check_resolve


@dataclass(frozen=True)
class Paid:
    number: int


@dataclass(frozen=True)
class PaidTwice(Paid):
    again: int


class Box(TypedDict):
    number: int


class Numbered(Protocol):
    number: int


@pytest.mark.parametrize(
    ("found", "result"),
    [
        (str | NotDone, str), (NotDone | None, type(None)), (NotDone, int), (str | None | NotDone, str | None),
        (str | NotDone, str | None), (Any, str), (Annotated[str, Sensitive] | NotDone, str), (int | NotDone, float),
        (PaidTwice | NotDone, Paid), (list[int] | NotDone, list[int]), (Literal["a"] | NotDone, str),
        (Box | NotDone | None, Box | None), (dict[str, int] | NotDone, Box), (Box | NotDone, Mapping[str, Any]),
        (Paid | NotDone, Numbered), (list[int] | NotDone, list[int | None]),
    ],
)  # fmt: skip
def test_what_resolve_may_return(found: Any, result: Any) -> None:
    """A part of what the step returns, or NOT_DONE."""
    assert list(check_resolve(found, result)) == []


@pytest.mark.parametrize(
    ("found", "result"),
    [
        (int | NotDone, str), (str | None | NotDone, str), (Paid | NotDone, PaidTwice),
        (list[str] | NotDone, list[int]),
        (float | NotDone, int), (NotDone | None, str), (NotDone | None, Box), (Box | NotDone, str),
        (Paid | NotDone, Box), (list[int | None] | NotDone, list[int]),
    ],
)  # fmt: skip
def test_what_resolve_may_not_return(found: Any, result: Any) -> None:
    """It would be stored as the step's result, after a crash."""
    (problem,) = check_resolve(found, result)
    assert "what is found is the step's result" in problem


@pytest.mark.parametrize(
    ("accepted", "result"),
    [
        (str, str), (str | Unknown, str), (str | None, str | None), (object, str), (Any, str),
        (Mapping[str, int], dict[str, int]), (Sequence[int], list[int]), (Paid, PaidTwice), (Unknown, str),
        (Annotated[str, Sensitive], Annotated[str, Sensitive]), (float, int),
        (Box | None, Box | None), (Numbered, Paid), (Sequence[int | None], list[int | None]),
        (list[str], list[Annotated[str, Sensitive]]),
    ],
)  # fmt: skip
def test_what_a_compensation_may_take(accepted: Any, result: Any) -> None:
    """All of what the step returns."""
    assert list(check_compensation("given", accepted, result)) == []


@pytest.mark.parametrize(
    ("accepted", "result"),
    [
        (int, str), (str, str | None), (int | Unknown, str), (PaidTwice, Paid), (list[str], list[int]),
        (type(None), str), (Box, Box | None), (Box, int),
    ],
)  # fmt: skip
def test_what_a_compensation_may_not_take(accepted: Any, result: Any) -> None:
    """It would be called with something else."""
    (problem,) = check_compensation("given", accepted, result)
    assert "is called with what the step returns" in problem


def test_the_class_is_refused() -> None:
    """With all of it said at once, where each step has one."""
    with pytest.raises(
        DefinitionError, match=r"(?s)'charge': its resolve may return int.*'ship': its compensation takes"
    ):

        class Wrong(Saga[None], name="test.disagrees", version=1):
            @external_step
            def charge(self) -> str:
                return "ch_1"

            @charge.resolve
            def find(self) -> int | NotDone:
                return 1

            @charge.compensate
            def refund(self, charge: str) -> None: ...

            @external_step
            def ship(self) -> str:
                return "parcel"

            @ship.compensate
            def recall(self, parcel: int) -> None: ...
