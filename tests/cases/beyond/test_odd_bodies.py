"""Bodies that raise and return what nobody expects: it is recorded in bounded text, and the next saga is not harmed."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from django.utils.safestring import mark_safe

from sagas import COMPENSATE, Refused, Retry, Saga, Skip, Undecided, Unknown, external_step, step
from sagas.states import Status
from sagas_django.models import LogEntry
from tests.cases.conftest import sql
from tests.shop.models import Booking
from tests.shop.sagas import Asked, BlindAsked, Charge, Kinds, Ordered, Pivoted, Trip
from tests.shop.world import World, world
from tests.support.stories import NO_WAIT, begin, begin_many, drain, log_of

pytestmark = pytest.mark.usefixtures("shop")


class Recursive(Exception):
    """Its text is about itself."""

    def __str__(self) -> str:
        return f"<{self}>"

    __repr__ = __str__


class Picky(Exception):
    """Cannot be made again from its arguments, and cannot be pickled."""

    def __init__(self, *, code: int, handle: Any) -> None:
        super().__init__(code, handle)


class Silent(Exception):
    """Its text is no text."""

    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class Quits(Exception):
    """Asking for its text ends the process."""

    def __str__(self) -> str:
        raise SystemExit(3)


def chained() -> Exception:
    """Its causes go round in a circle."""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def deep() -> Exception:
    """A group in a group, hundreds of times."""
    found: Exception = ValueError("innermost")
    for _ in range(500):
        found = ExceptionGroup("outer\x00", [found])
    return found


def deep_cause() -> Exception:
    """Thousands of causes."""
    found = ValueError("innermost")
    for number in range(3000):
        outer = ValueError(f"{number}" * 50)
        outer.__cause__ = found
        found = outer
    return found


def recursion(run: Any) -> Any:
    """Ends at the limit of the stack."""
    return recursion(run)


NAMED = type("Odd" + "x" * 500, (Exception,), {})
RAISED: dict[str, Callable[[], Any]] = {
    "recursive": lambda: Recursive(), "picky": lambda: Picky(code=7, handle=open), "silent": lambda: Silent(),
    "quits": lambda: Quits(), "chained": chained, "deep-group": deep, "deep-cause": deep_cause,
    "named": lambda: NAMED("x"), "stack": lambda: recursion, "huge": lambda: ValueError("\U0001f600" * 3_000_000),
    "bytes": lambda: OSError(5, b"\xff\xfe"), "nul": lambda: KeyError("\x00\ud800\udfff"),
    "stop": lambda: StopIteration("x"), "generator-exit": lambda: GeneratorExit(), "exit": lambda: SystemExit(1),
    "memory": lambda: MemoryError(), "no-args": lambda: Exception(), "refused-nul": lambda: Refused("no\x00\ud800"),
    "undecided": lambda: Undecided("what?"),
}  # fmt: skip


WORST = ("recursive", "quits", "generator-exit")  # the others in the long run
EACH = [
    pytest.param(name, place, marks=() if place == "charge" and name in WORST else pytest.mark.full)
    for name in RAISED
    for place in ("book", "charge", "unbook")
]


@pytest.mark.parametrize(("name", "place"), EACH)
def test_any_exception_is_a_failure_of_its_own_step(world: World, name: str, place: str) -> None:
    """Whatever is raised, in a local step, an external one or a compensation: that saga turns back or waits for a
    person, with a text of bounded length. Its neighbours end, and the worker goes on."""
    if place == "unbook":
        world.always("confirm", Refused("no"), saga="odd")
    world.plan(place, *[RAISED[name]() for _ in range(20)], saga="odd")
    begin_many(Trip, ["a", "odd", "c"])
    drain()
    assert {Trip.get(key=key).status for key in "ac"} == {Status.COMPLETED}
    odd = Trip.get(key="odd")
    assert odd.status in (Status.COMPENSATED, Status.PARKED), odd
    assert odd.status is Status.PARKED or place != "unbook"
    assert 0 < len(odd.error) < 3000
    assert (
        max(len(str(data)) for data in LogEntry.objects.filter(saga_id=odd.id).values_list("data", flat=True)) < 30000
    )


@dataclass(frozen=True)
class Same:
    """Says of everything that it is equal, and of nothing."""

    text: str = ""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare me")

    def __hash__(self) -> int:
        raise RuntimeError("do not hash me")


class Incomparable(Saga[Ordered], name="beyond.incomparable", version=1):
    """Returns what cannot be compared."""

    @external_step(retry=Retry(max_attempts=2, first=1))
    def charge(self) -> Same:
        world.act("charge", self)
        return Same("x")

    @charge.compensate
    def refund(self, charge: Same | Unknown) -> None:
        world.act("refund", self)


def test_a_result_that_cannot_be_compared(world: World) -> None:
    """A charge that was made, and whose result objects when it is looked at: made once, and undone or kept in view."""
    begin(Incomparable)
    drain()
    assert Incomparable.get(key="a").status in (Status.COMPLETED, Status.COMPENSATED, Status.PARKED)
    assert len({call.key for call in world.of("charge")}) == 1
    assert world.count()["charge"] == 1


@pytest.mark.parametrize(
    "result",
    [float("nan"), Decimal("NaN"), Decimal("Infinity"), 10**5000, "\ud800", "x" * 2_000_000],
    ids=lambda value: type(value).__name__,
)
def test_a_result_that_json_or_postgres_cannot_keep(world: World, result: Any) -> None:
    """The charge was made, and what came back cannot be kept: it is not made again; it is undone as what may have
    happened, or waits for a person."""
    world.always("charge", result)
    begin(Charge)
    drain()
    assert Charge.get(key="a").status in (Status.PARKED, Status.COMPENSATED, Status.COMPLETED)
    assert len({call.key for call in world.of("charge")}) == 1
    assert world.count()["charge"] <= 1


def test_refund_that_is_refused(world: World) -> None:
    """A compensation that says "no": the saga waits for a person, and is never called compensated."""
    world.always("confirm", Refused("no"))
    world.plan("refund", Refused("the account is closed"))
    begin(Trip)
    drain()
    found = Trip.get(key="a")
    assert (found.status, world.count()["refund"]) == (Status.PARKED, 1)
    assert "the account is closed" in found.error
    assert world.count()["unbook"] == 0


def test_keys_that_look_the_same(world: World) -> None:
    """Two keys that are written the same and are not (composed and decomposed letters), and those that differ in case
    or a space at the end: each is a key of its own, found again as it was given."""
    keys = [unicodedata.normalize(form, "café") for form in ("NFC", "NFD")] + ["Café", "café ", "CAFÉ", "\u202ecafé"]
    begin_many(Trip, keys)
    drain()
    assert [Trip.get(key=key).key for key in keys] == keys
    assert world.count()["charge"] == len(keys)


def test_a_key_that_a_template_marked_as_safe() -> None:
    """Subclasses of `str`, such as Django's safe strings: taken as the text that they are."""
    key = mark_safe("order-7")
    with transaction.atomic():
        run = Trip.start(Ordered(), key=key, headers={mark_safe("a"): mark_safe("b")}, ordering_key=key)
    assert type(run.key) is str
    assert Trip.get(key=key).id == run.id
    Trip.cancel(key=key, reason=mark_safe("<b>why</b>"))
    drain()
    assert Trip.get(key="order-7").status == Status.CANCELLED


class Fickle(Saga[Ordered], name="beyond.fickle", version=1):
    """Its condition is another one each time it is asked."""

    @external_step(when=lambda self: world.act("when", self), retry=Retry(max_attempts=5, first=1))
    def charge(self) -> str:
        return str(world.act("charge", self))

    @charge.compensate
    def refund(self, charge: str) -> None:
        world.act("refund", self)

    @step(compensate=None)
    def last(self) -> None:
        world.act("last", self)


def test_a_condition_that_changes_its_mind(world: World) -> None:
    """`when=` says yes, the charge fails without an answer, and `when=` would say no by now: what was decided stays,
    the charge is retried under its key, and is undone when the saga turns back."""
    world.plan("when", True)
    world.always("when", False)
    world.plan("charge", ConnectionError("no answer"))
    run = begin(Fickle)
    drain()
    assert (Fickle.get(key="a").status, world.count()["charge"]) == (Status.COMPLETED, 2)
    assert len({call.key for call in world.of("charge")}) == 1
    assert "step_skipped charge" not in log_of(run)


@pytest.mark.parametrize("answer", ["yes", 0, None, [], Skip("x"), RuntimeError("x"), StopIteration()])
def test_what_a_condition_may_answer(world: World, answer: Any) -> None:
    """Anything true or false, and an error, which is one of its step; the saga ends in every case."""
    world.plan("when", answer)
    world.always("when", True)
    begin(Fickle)
    drain()
    assert Fickle.get(key="a").status == Status.COMPLETED
    assert world.count()["charge"] == (1 if answer == "yes" or isinstance(answer, Exception) else 0)


@pytest.mark.full
def test_resolve_that_never_comes_to_an_answer(world: World) -> None:
    """The bank does not answer and its look-up raises each time: asked so often as `Retry` says, then a person is
    waited for; the charge is not made under another key, and never undone by guess."""
    world.always("charge", TimeoutError("no answer"))
    world.always("find", RuntimeError("no answer here either"))
    begin(Asked)
    drain()
    assert Asked.get(key="a").status == Status.PARKED
    assert len({call.key for call in world.of("charge")}) == 1
    assert world.count()["refund"] == 0
    assert world.count()["find"] < 20


def test_a_provider_that_answers_after_everything_was_undone(world: World) -> None:
    """The charge lands after the saga has turned back: settling finds it and undoes it, once."""
    world.plan("charge", TimeoutError("no answer"))
    from sagas import NOT_DONE

    world.plan("find", Undecided("not yet"), NOT_DONE, "charge-7")
    begin(BlindAsked)
    for _ in range(4):
        drain()
        sql("update sagas_outbox set due_at = now()")
    drain()
    assert BlindAsked.get(key="a").status in (Status.COMPENSATED, Status.PARKED)
    assert world.count()["charge"] == 1


def test_cancel_while_the_pivot_is_in_doubt(world: World) -> None:
    """The pivot was asked for and did not answer; somebody cancels. It is not undone: it is asked again, and the saga
    completes."""
    world.plan("ship", TimeoutError("no answer"))
    run = begin(Pivoted)
    drain(skip=NO_WAIT)
    Pivoted.cancel(key="a", reason="too late")
    drain()
    assert Pivoted.get(key="a").status == Status.COMPLETED
    assert world.count()["unbook"] == 0
    assert len({call.key for call in world.of("ship")}) == 1
    assert "cancel_requested" in log_of(run)


def test_the_recursion_limit_is_what_it_was() -> None:
    """None of this leaves the interpreter in another state."""
    assert sys.getrecursionlimit() == 1000
    assert COMPENSATE is not None and Booking.objects.count() == 0 and Kinds.saga_name == "test.kinds"
