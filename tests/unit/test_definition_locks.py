"""What can be said of a semantic lock, and where."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sagas import DefinitionError, InvalidInput, Saga, external_step, semantic_lock, step
from sagas.locks import LONGEST_SUBJECT, MOST_SUBJECTS


@pytest.mark.parametrize(
    ("given", "wait", "words"),
    [
        ("", None, "1 to 200 printable characters"),
        ("a\nb", None, "1 to 200 printable characters"),
        (7, None, "a text such as 'account:7', or a function"),
        ("a", -1, "from 0 to 30 days"),
        ("a", timedelta(days=31), "from 0 to 30 days"),
        ("a", "soon", "seconds or a timedelta"),
        ("a", float("nan"), "seconds or a timedelta"),
        ("a", True, "seconds or a timedelta"),
    ],
)
def test_what_cannot_be_said(given: Any, wait: Any, words: str) -> None:
    """At once, with the value."""
    with pytest.raises(DefinitionError, match=words):
        semantic_lock(given, wait=wait)


def test_subjects_are_in_order_each_once() -> None:
    """However they are given, so that everybody takes them in one order."""
    assert semantic_lock("a").subjects(None) == ("a",)
    assert semantic_lock(lambda saga: saga).subjects("b") == ("b",)
    assert semantic_lock(lambda saga: saga).subjects(["b", "a", "b"]) == ("a", "b")
    assert semantic_lock("a", wait=timedelta(minutes=1)).wait == 60.0


@pytest.mark.parametrize("found", [[], [""], ["a"] * (MOST_SUBJECTS + 1), "x" * (LONGEST_SUBJECT + 1), [None]])
def test_what_a_function_may_not_return(found: Any) -> None:
    """Nothing, too many, or what cannot be stored."""
    with pytest.raises(InvalidInput, match="semantic_lock"):
        semantic_lock(lambda saga: found).subjects(None)


def test_only_a_lock_is_one() -> None:
    """A subject alone is a slip that is easy to make."""
    with pytest.raises(DefinitionError, match=r"write lock=semantic_lock\('account:7'\)"):

        @step(lock="account:7")  # type: ignore[call-overload]
        def body(self: Any) -> None: ...


def test_not_after_the_pivot() -> None:
    """What follows it must not be refused; the pivot itself may be."""
    with pytest.raises(DefinitionError, match="say lock= at the pivot or in a step before it"):

        class Late(Saga[None], name="test.lock_late", version=1):
            @external_step(pivot=True, lock=semantic_lock("a"))
            def decide(self) -> None: ...

            @step(lock=semantic_lock("b"))
            def after(self) -> None: ...


def test_a_lock_is_part_of_the_definition() -> None:
    """A saga that was started without one may not end with one, nor the other way round: that is another version."""

    class Plain(Saga[None], name="test.lock_none", version=1):
        @step(compensate=None)
        def body(self) -> None: ...

    class Locked(Saga[None], name="test.lock_some", version=1):
        @step(compensate=None, lock=semantic_lock("a"))
        def body(self) -> None: ...

    assert Plain.fingerprint() != Locked.fingerprint()
    assert (Plain.plan.has_locks, Locked.plan.has_locks) == (False, True)
