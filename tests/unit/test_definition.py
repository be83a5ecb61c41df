"""A saga class says what it means, and becomes a plan; what `self` is inside a body."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest

from sagas import (
    COMPENSATE,
    NOT_DONE,
    PARK,
    UNKNOWN,
    DefinitionError,
    LeaseLost,
    NoResult,
    NotDone,
    OnExisting,
    Refused,
    Retry,
    Saga,
    SagaError,
    Step,
    StepRun,
    Unknown,
    external_step,
    step,
)
from sagas.keys import idempotency_key
from sagas.plan import Plan, StepPlan, UndoPlan
from sagas.retry import FOREVER


@dataclass(frozen=True)
class OrderPlaced:
    order_id: UUID
    amount: Decimal


class PlaceOrder(Saga[OrderPlaced], name="test.place_order", version=1):
    """Reserve stock, take the money, ship."""

    @step
    def reserve(self) -> UUID:
        """Put it aside."""
        return self.input.order_id

    @reserve.compensate
    def release(self, reservation: UUID) -> None:
        pass

    @external_step(
        retry=Retry(max_attempts=8),
        timeout=30,
        queue="payments",
        key_ttl=timedelta(hours=24),
        on_unknown=COMPENSATE,
        settle_after=timedelta(minutes=5),
        max_deliveries=3,
    )
    def charge(self) -> str:
        return f"{self.input.amount} under {self.idempotency_key} for {self.reserve.result}"

    @charge.resolve
    def find_charge(self) -> str | NotDone:
        return NOT_DONE

    @charge.compensate(retry=Retry(max_attempts=9), timeout=timedelta(seconds=7), queue="refunds")
    def refund(self, charge_id: str | Unknown) -> None:
        pass

    @refund.resolve
    def find_refund(self, charge_id: str | Unknown) -> NotDone | None:
        return None

    @external_step(pivot=True)
    def ship(self) -> None:
        self.x = 1

    @step
    def thank(self) -> None:
        pass


@dataclass(frozen=True)
class Context:
    """A worker's side of a body, for tests."""

    input: object = None
    id: UUID = field(default_factory=uuid4)
    key: str | None = "order-7"
    idempotency_key: str = "k"
    attempt: int = 2
    headers: Mapping[str, str] = field(default_factory=dict)
    session: object | None = None
    runs: Mapping[str, StepRun[Any]] = field(default_factory=dict)
    beats: list[str] = field(default_factory=list)

    def step_run(self, name: str) -> StepRun[Any]:
        return self.runs[name]

    def effect(self, name: str, call: Callable[[str], Any], *, returns: Any, request: object = None) -> Any:
        return call(f"{self.idempotency_key}/{name}")

    progress: object = 7

    def heartbeat(self, progress: object = None) -> None:
        self.beats.append("beat" if progress is None else f"beat {progress}")


def test_plan() -> None:
    """Everything said in decorators is in the plan, durations in seconds."""
    assert PlaceOrder.plan == Plan(
        name="test.place_order",
        version=1,
        steps=(
            StepPlan(
                name="reserve",
                external=False,
                queue="default",
                retry=Retry(),
                undo=UndoPlan(external=False, queue="default", retry=Retry(), timeout=None),
            ),
            StepPlan(
                name="charge",
                external=True,
                queue="payments",
                retry=Retry(max_attempts=8),
                timeout=30.0,
                key_ttl=86400.0,
                has_resolve=True,
                on_unknown=COMPENSATE,
                undo=UndoPlan(
                    external=True,
                    queue="refunds",
                    retry=Retry(max_attempts=9),
                    timeout=7.0,
                    has_resolve=True,
                    accepts_unknown=True,
                ),
                settle_after=300.0,
                max_deliveries=3,
            ),
            StepPlan(name="ship", external=True, queue="default", retry=Retry(), pivot=True),
            StepPlan(name="thank", external=False, queue="default", retry=Retry(max_attempts=FOREVER)),
        ),
    )


def test_class_attributes() -> None:
    """On the class a step is its definition."""
    assert PlaceOrder.saga_name == "test.place_order"
    assert PlaceOrder.saga_version == 1
    assert PlaceOrder.input_type is OrderPlaced
    assert PlaceOrder.steps == (PlaceOrder.reserve, PlaceOrder.charge, PlaceOrder.ship, PlaceOrder.thank)
    charge = PlaceOrder.charge
    assert isinstance(charge, Step)
    assert (charge.name, charge.result_type, charge.external) == ("charge", str, True)
    assert charge.undo is PlaceOrder.refund
    assert charge.resolver is PlaceOrder.find_charge
    assert charge.plan is PlaceOrder.plan.by_name["charge"]
    assert PlaceOrder.ship.result_type is type(None)
    assert PlaceOrder.reserve.__doc__ == "Put it aside."
    assert repr(charge) == "<external step PlaceOrder.charge>"


def test_compensation_follows_its_step() -> None:
    """Kind, queue and timeout of an undo are its step's unless said otherwise; its retries are its own."""

    class P(Saga[None], name="test.undo", version=1):
        @external_step(queue="q", timeout=9, retry=Retry(max_attempts=1))
        def a(self) -> None: ...

        @a.compensate
        def undo_a(self, result: None) -> None: ...

        @external_step
        def b(self) -> int:
            return 1

        @b.compensate(external=False)
        def undo_b(self, result: int) -> None: ...

    a, b = (each.undo for each in P.plan.steps)
    assert a == UndoPlan(external=True, queue="q", retry=Retry(), timeout=9.0)
    assert b is not None
    assert not b.external


def test_self_inside_a_body() -> None:
    """`self` has the input, the key, the attempt, and this saga's runs of other steps."""
    reserved = StepRun(name="reserve", status="done", attempts=1, load=lambda: "R7")
    context = Context(input=OrderPlaced(uuid4(), Decimal(5)), runs={"reserve": reserved}, headers={"a": "b"})
    run = PlaceOrder._for_run(context)
    assert PlaceOrder.charge.body(run) == "5 under k for R7"
    assert (run.id, run.key, run.attempt, run.headers, run.session) == (context.id, "order-7", 2, {"a": "b"}, None)
    assert (run.reserve.status, run.reserve.attempts, run.reserve.name) == ("done", 1, "reserve")
    run.heartbeat()
    run.heartbeat(progress=8)
    assert (context.beats, run.progress) == (["beat", "beat 8"], 7)
    assert run.effect("pay", lambda key: key, returns=str) == "k/pay"


def test_state_on_self_is_refused() -> None:
    """What a body keeps on self would be lost on retry."""
    run = PlaceOrder._for_run(Context())
    with pytest.raises(AttributeError, match="return it as the step's result"):
        PlaceOrder.ship.body(run)
    with pytest.raises(AttributeError):
        run.charge = 1  # type: ignore[assignment]


def test_result_that_is_not_there() -> None:
    """Reading a result too early says which step and in what state it is."""
    early: StepRun[str] = StepRun(name="charge", status="pending", attempts=0)
    with pytest.raises(NoResult, match=r"'charge' has no result: it is 'pending' after 0 attempt"):
        early.result  # noqa: B018


def test_instances_are_the_workers() -> None:
    """Calling the class is a slip of the pen for start()."""
    with pytest.raises(TypeError, match=r"PlaceOrder\.start"):
        PlaceOrder(OrderPlaced(uuid4(), Decimal(1)))


def test_start_get_cancel_delegate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The class hands its public calls to the engine, arguments unchanged."""
    calls: list[Any] = []
    engine = types.ModuleType("sagas.engine")
    for name in ("start", "get", "cancel"):
        setattr(engine, name, lambda *args, _name=name, **kwargs: calls.append((_name, args, kwargs)))
    monkeypatch.setitem(sys.modules, "sagas.engine", engine)
    monkeypatch.setattr("sagas.engine", engine, raising=False)
    placed = OrderPlaced(uuid4(), Decimal(1))
    PlaceOrder.start(placed, key="k", headers={"a": "b"})
    PlaceOrder.get(key="k", using="other")
    PlaceOrder.cancel(key="k", reason="customer called")
    assert calls == [
        (
            "start",
            (PlaceOrder, placed),
            {
                "key": "k",
                "subject": None,
                "using": None,
                "on_existing": OnExisting.RETURN,
                "own_transaction": False,
                "headers": {"a": "b"},
                "deadline": None,
                "priority": 0,
                "ordering_key": None,
            },
        ),
        ("get", (PlaceOrder,), {"key": "k", "id": None, "using": "other"}),
        ("cancel", (PlaceOrder,), {"key": "k", "id": None, "reason": "customer called", "using": None}),
    ]


def test_abstract_bases() -> None:
    """A base without name and version may hold steps and a type variable; each saga has its own plan."""
    I = TypeVar("I")  # noqa: E741

    class Base(Saga[I]):
        @step(compensate=None)
        def first(self) -> int:
            return 1

    class A(Base[int], name="test.base.a", version=1):
        @step(pivot=True)
        def second(self) -> None: ...

    class B(Base[str], name="test.base.b", version=1):
        @external_step(compensate=None)
        def first(self) -> int:
            return 2

    assert (A.input_type, B.input_type) == (int, str)
    assert [each.name for each in A.plan.steps] == ["first", "second"]
    assert [each.external for each in B.plan.steps] == [True]
    with pytest.raises(DefinitionError, match="abstract"):
        Base.plan  # noqa: B018


def test_new_version_inherits() -> None:
    """A new version may build on the old class; the old one is untouched."""
    old = PlaceOrder.fingerprint()

    class PlaceOrder2(PlaceOrder, name="test.place_order", version=2):
        @external_step
        def invoice(self) -> int:
            return 1

    assert [each.name for each in PlaceOrder2.steps] == ["reserve", "charge", "ship", "thank", "invoice"]
    assert PlaceOrder2.fingerprint() != old == PlaceOrder.fingerprint()


def test_types_local_to_a_function() -> None:
    """Types beside the class, in a test or a factory, are found although annotations are text."""

    @dataclass
    class Local:
        a: int

    class P(Saga[Local], name="test.local_types", version=1):
        @step(pivot=True)
        def only(self) -> Local:
            return self.input

    assert isinstance(vars(P)["plan"], Plan)
    assert P.only.result_type is Local


def fingerprint_of(**options: Any) -> str:
    """Fingerprint of a one-step saga with these options."""

    class P(Saga[None], name="test.fingerprint", version=1):
        @external_step(**options)
        def only(self) -> None: ...

    return P.fingerprint()


def test_fingerprint() -> None:
    """What a running saga relies on changes the fingerprint; tuning does not."""
    base = fingerprint_of(compensate=None)
    assert base == fingerprint_of(compensate=None, retry=Retry(max_attempts=1), timeout=3, queue="q", key_ttl=60)
    assert base != fingerprint_of(pivot=True)


def test_idempotency_key_has_nothing_volatile() -> None:
    """The key is the same in every attempt; the undo and each new asking have their own."""
    saga = UUID(int=1)
    assert idempotency_key(saga, "charge") == f"{saga}:charge:do:0"
    assert idempotency_key(saga, "charge", "undo", 2) == f"{saga}:charge:undo:2"


def test_markers() -> None:
    """Markers are singletons that read like their names."""
    assert (repr(UNKNOWN), repr(NOT_DONE)) == ("UNKNOWN", "NOT_DONE")
    assert UNKNOWN is Unknown.UNKNOWN
    assert NOT_DONE is NotDone.NOT_DONE
    assert PARK != COMPENSATE


def test_docstring_is_the_default_message() -> None:
    """An error without a message says what its docstring says; all have one root."""
    assert str(LeaseLost()).startswith("This worker no longer holds the lease")
    assert str(Refused("card declined")) == "card declined"
    assert str(Refused()) == "The step was refused; this attempt definitely did nothing."
    assert issubclass(Refused, SagaError)
