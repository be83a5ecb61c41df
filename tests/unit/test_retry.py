"""Backoff stays within its bounds, and numbers that make no sense are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagas import Retry


@given(
    st.floats(0.001, 100), st.floats(1, 10), st.integers(-5, 10**6), st.floats(0, 1, exclude_max=True), st.floats(1, 50)
)
def test_delay_is_bounded(first: float, factor: float, failures: int, jitter: float, times: float) -> None:
    """Never negative, never above the cap, however often it failed."""
    retry = Retry(first=first, factor=factor, longest=first * times)
    assert 0 <= retry.delay(failures, jitter) <= retry.longest


@given(st.integers(1, 200))
def test_backoff_grows(failures: int) -> None:
    """More failures never mean a shorter backoff."""
    retry = Retry()
    assert retry.delay(failures, 1.0) <= retry.delay(failures + 1, 1.0)


def test_values() -> None:
    """first, first * factor, ... up to the cap; full jitter scales from nothing."""
    retry = Retry(first=1, factor=2, longest=10)
    assert [retry.delay(n, 1.0) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]
    assert retry.delay(3, 0.0) == 0
    assert retry.delay(3, 0.5) == 2


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"first": 0}, "first"),
        ({"first": float("nan")}, "first"),
        ({"factor": 0.5}, "factor"),
        ({"longest": 0.5}, "longest"),
        ({"longest": float("inf")}, "longest"),
    ],
)
def test_wrong_numbers(arguments: dict[str, Any], word: str) -> None:
    """The message names the argument."""
    with pytest.raises(ValueError, match=word):
        Retry(**arguments)


@pytest.mark.parametrize("wrong", [1, "ValueError", BaseException, ValueError("x")])
def test_give_up_on_takes_exception_classes(wrong: Any) -> None:
    """Anything else would never match and hide a typing error."""
    with pytest.raises(TypeError, match="give_up_on"):
        Retry(give_up_on=(wrong,))
