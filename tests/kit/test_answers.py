"""Answers in place of bodies: typed, in order, recorded, and gone with the test."""

from __future__ import annotations

import traceback

import pytest

from sagas import NOT_DONE, Refused, Undecided
from sagas.states import Status
from sagas.testing import Kit, WrongAnswer, answers
from tests.kit.sagas import Blind, Buy, Order, Slow


def test_calls_are_recorded(sagas: Kit) -> None:
    """Input, key and attempt; of a compensation also what it was given."""
    buy = sagas.answers(Buy)
    buy.charge.raises(ConnectionError("reset")).returns("ch_1")
    buy.find_charge.returns(NOT_DONE)
    buy.confirm.refuses("no")
    buy.refund.returns()
    run = sagas.run(Buy, Order(7), key="a", check=False)
    first, second = buy.charge.calls
    assert (first.key, first.input, first.saga_id, first.attempt, second.attempt) == ("a", Order(7), run.id, 1, 2)
    assert first.idempotency_key == second.idempotency_key == f"{run.id}:charge:do:0"
    assert len(buy.find_charge.calls) == 1


def test_a_compensation_gets_the_answer_of_its_step(sagas: Kit) -> None:
    """It is what is stored."""
    buy = sagas.answers(Buy)
    buy.charge.returns("ch_1")
    buy.confirm.refuses("sold out")
    buy.refund.raises(ConnectionError).returns()
    run = sagas.run(Buy, Order(7), key="a")
    assert run.status == Status.COMPENSATED
    assert [call.argument for call in buy.refund.calls] == ["ch_1", "ch_1"]
    assert buy.charge.compensation is buy.refund
    assert buy.charge.resolve is buy.find_charge


def test_an_error_that_is_raised_again(sagas: Kit) -> None:
    """It is one object, and the tracebacks of its attempts do not pile up on it."""
    buy, error = sagas.answers(Buy), ConnectionError("reset")
    buy.charge.returns("ch_1")
    buy.confirm.refuses("sold out")
    buy.refund.raises(error, times=3).returns()
    sagas.run(Buy, Order(7), key="a")
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)].count("_play") == 1


def test_the_last_answer_is_repeated(sagas: Kit) -> None:
    """And each before it is given once, or as often as it says."""
    call = sagas.answers(Slow).call.returns("a", times=2).returns("b").returns("c")
    for number in range(5):
        sagas.run(Slow, Order(number), key=str(number))
    assert [Slow.get(key=str(n)).status for n in range(5)] == [Status.COMPLETED] * 5
    assert "".join(sagas_result(sagas, str(number)) for number in range(5)) == "aabcc"
    assert len(call.calls) == 5


def sagas_result(sagas: Kit, key: str) -> str:
    from sagas_django.models import LogEntry

    entry = LogEntry.objects.get(saga_id=Slow.get(key=key).id, kind="step_done")
    return str(entry.data["result"])


def test_more_calls_than_the_test_has_told(sagas: Kit) -> None:
    """A number of times that is the last word is an upper limit."""
    sagas.answers(Slow).call.returns("a", times=1)
    sagas.run(Slow, Order(1), key="a")
    sagas.run(Slow, Order(2), key="b", check=False)
    assert "called more often" in sagas.story(Slow.get(key="b"))


def test_named_and_not_told_it_runs_for_real(sagas: Kit) -> None:
    """And its calls are recorded all the same."""
    buy = sagas.answers(Buy)
    buy.charge.returns("ch_1")
    reserve = buy.reserve
    assert sagas.run(Buy, Order(7), key="a").status == Status.COMPLETED
    assert len(reserve.calls) == 1


def test_functions_as_answers(sagas: Kit) -> None:
    """With the `self` of the body."""
    sagas.answers(Buy).charge.does(lambda run: f"ch-{run.input.number}-{run.attempt}")
    sagas.answers(Buy).confirm.does(lambda run: run.charge.result)
    assert sagas.run(Buy, Order(7), key="a").status == Status.COMPLETED


def test_unknown_outcomes_are_asked_about(sagas: Kit) -> None:
    """First nobody can say, then it turns out to have happened: no second charge."""
    charge = sagas.answers(Buy).charge.times_out()
    charge.resolve.undecided("ask later").returns("ch_9")
    assert sagas.run(Buy, Order(7), key="a").status == Status.COMPLETED
    assert (len(charge.calls), len(charge.resolve.calls)) == (1, 2)


@pytest.mark.parametrize(
    ("tell", "message"),
    [
        (lambda: answers(Buy).charg, r"no step, compensation or resolve 'charg'; did you mean 'charge'\?"),
        (lambda: answers(Buy).start, "no step, compensation or resolve 'start'; .*charge"),
        (lambda: answers(Buy).nothing_like_it, "it has .*charge, confirm"),
        (lambda: answers(Buy).charge.returns(5), r"answer of step Buy\.charge"),
        (lambda: answers(Buy).charge.returns(), r"answer of step Buy\.charge"),
        (lambda: answers(Buy).charge.returns(NOT_DONE), r"answer of step Buy\.charge"),
        (lambda: answers(Buy).find_charge.returns(5), r"the resolve of step Buy\.charge"),
        (lambda: answers(Buy).refund.returns("ch_1"), "returns nothing, not 'ch_1'"),
        (lambda: answers(Buy).charge.raises("ConnectionError"), "an exception"),
        (lambda: answers(Buy).charge.undecided(), "cannot be undecided"),
        (lambda: answers(Buy).charge.raises(Undecided("?")), "cannot be undecided"),
        (lambda: answers(Buy).find_charge.refuses(), "cannot refuse; it returns NOT_DONE"),
        (lambda: answers(Buy).find_charge.raises(Refused), "cannot refuse"),
        (lambda: answers(Buy).reserve.resolve, "nothing is declared to resolve it"),
        (lambda: answers(Buy).refund.resolve, "nothing is declared to resolve it"),
        (lambda: answers(Buy).confirm.compensation, "has no compensation"),
        (lambda: answers(Buy).charge.returns("x", times=0), "at least 1"),
        (lambda: answers(Buy).charge.does(3), "cannot be called"),
        (lambda: answers(Order), "a saga class"),
    ],
)
def test_what_does_not_fit_is_an_error_at_once(tell: object, message: str) -> None:
    """Wrong names and wrong types are found where the test says them."""
    with pytest.raises(WrongAnswer, match=message):
        tell()  # type: ignore[operator]


def test_bodies_are_put_back_1() -> None:
    """One of two tests that would disturb each other."""
    assert not hasattr(Blind.charge.body, "__wrapped__")
    answers(Blind).charge.returns("ch_1")
    assert hasattr(Blind.charge.body, "__wrapped__")


def test_bodies_are_put_back_2() -> None:
    """The other."""
    test_bodies_are_put_back_1()
