"""The small sagas that are checked, and the worlds they are checked in."""

from __future__ import annotations

from typing import Any, Final

from sagas.plan import OnTimeout, OnUnknown, Plan, StepPlan, UndoPlan, WaitPlan
from sagas.retry import Retry
from tests.modelcheck.provider import EVERYTHING, Provider
from tests.modelcheck.scenario import FAULTS, Late, Scenario
from tests.modelcheck.statements import ALL_RULES, Rules

KEYS: Final = Provider(keys=True, tombstones=False, resolve=False)
ASKED: Final = Provider(keys=True, tombstones=False, resolve=True)
TOMBSTONES: Final = Provider(keys=True, tombstones=True, resolve=False)
ALL: Final = EVERYTHING
NOTHING: Final = Provider(keys=False, tombstones=False, resolve=False)
FORGETS: Final = Provider(keys=True, tombstones=False, resolve=False, forgets=True)
TWO: Final = {"charge": ("debit", "credit")}  # guarded effects of a step
ONCE: Final = Retry(max_attempts=1)


def undo(**options: Any) -> UndoPlan:
    """An external compensation that takes a result only, and two attempts."""
    given: dict[str, Any] = {"external": True, "queue": "one", "retry": Retry(max_attempts=2), "timeout": 30.0}
    return UndoPlan(**{**given, **options})


def step(name: str, **options: Any) -> StepPlan:
    """An external step that can be undone given its result, and takes two attempts."""
    given: dict[str, Any] = {
        "external": True, "queue": "one", "retry": Retry(max_attempts=2), "timeout": 30.0, "undo": undo(),
        "max_deliveries": 2,
    }  # fmt: skip
    return StepPlan(name=name, **{**given, **options})


def local(name: str, **options: Any) -> StepPlan:
    """A local step with a local compensation."""
    return step(name, **{"external": False, "undo": undo(external=False), **options})


def pivot(name: str, **options: Any) -> StepPlan:
    """An external step that decides."""
    return step(name, **{"pivot": True, "undo": None, **options})


def wait(name: str, on_timeout: OnTimeout | None = OnTimeout.PARK) -> StepPlan:
    """A wait for a signal; without `on_timeout`, for a time."""
    given = WaitPlan(signal=on_timeout is not None, on_timeout=on_timeout or OnTimeout.PARK)
    return step(name, external=False, undo=None, wait=given)


def plan(*steps: StepPlan) -> Plan:
    """A definition of these steps."""
    return Plan(name="check", version=1, steps=steps)


ACCEPTS: Final = undo(accepts_unknown=True)
COMPENSATE: Final = OnUnknown.COMPENSATE
WHATEVER: Final[dict[str, Any]] = {"undo": ACCEPTS, "on_unknown": COMPENSATE}
BODY: Final = frozenset({"crash", "freeze", "timeout", "refusal", "undecided"})  # what befalls bodies


def poison(rules: Rules = ALL_RULES) -> Scenario:
    """A saga whose body kills every worker beside one that does no harm; one relay publishes both."""
    plans = (plan(step(name, max_deliveries=3, retry=Retry(max_attempts=4))) for name in ("poison", "charge"))
    return Scenario(
        name="a step that kills its workers, beside a harmless one", plans=tuple(plans), provider=KEYS, broker=True,
        together=True, deadly="poison", faults=1, kinds=frozenset({"freeze", "loss", "duplicate"}), rules=rules,
    )  # fmt: skip


def scenarios() -> tuple[Scenario, ...]:
    """What is checked in every test run: in each world at most so many faults in one run."""
    return (*_protocol(), *_unknown(), *_effects(), *_rare(), poison())


def _protocol() -> tuple[Scenario, ...]:
    """The claim protocol: all faults."""
    charge = step("charge", has_resolve=True, **WHATEVER)
    ship = pivot("ship", has_resolve=True)
    late = frozenset({"freeze", "lost acknowledgement"})
    other_queue = step("charge", undo=undo(has_resolve=True, queue="two"), queue="two")
    return (
        Scenario(
            name="local, external, pivot", plans=(plan(local("reserve"), charge, ship),), cancels=1, retries=1, faults=1
        ),
        Scenario(
            name="one step, relay and broker", plans=(plan(charge),), broker=True, cancels=1, faults=2,
            kinds=FAULTS - {"refusal", "undecided", "hand back"},
        ),
        Scenario(name="two steps, relay and broker", plans=(plan(charge, ship),), broker=True, cancels=1, faults=1),
        Scenario(name="two cancels", plans=(plan(charge),), cancels=2, retries=1, faults=1),
        Scenario(
            name="undo that can be asked about, another queue", plans=(plan(other_queue, step("book")),),
            provider=KEYS, cancels=1, faults=1,
        ),
        Scenario(
            name="a late answer that is heard, asked", plans=(plan(step("charge", has_resolve=True)),), provider=ASKED,
            cancels=1, faults=2, kinds=late,
        ),
        Scenario(
            name="a late answer that is heard, not asked", plans=(plan(step("charge", **WHATEVER)),), provider=KEYS,
            cancels=1, faults=2, kinds=late | {"refusal"},
        ),
        Scenario(
            name="two late answers", plans=(plan(step("charge"), step("book")),), provider=KEYS, cancels=1, faults=2,
            kinds=frozenset({"freeze"}), workers=3,
        ),
    )  # fmt: skip


def _unknown() -> tuple[Scenario, ...]:
    """Unknown outcomes: what befalls bodies, at providers that offer more and less."""
    return (
        Scenario(
            name="pivot in doubt, nobody to ask", plans=(plan(step("charge"), pivot("ship")),), provider=KEYS,
            retries=1, faults=2, kinds=BODY,
        ),
        Scenario(
            name="pivot in doubt, cancelled", plans=(plan(pivot("ship", has_resolve=True)),), provider=ASKED,
            cancels=1, retries=1, faults=2, kinds=BODY,
        ),
        Scenario(
            name="unknown: parked", plans=(plan(step("charge")),), provider=KEYS, cancels=1, retries=1, faults=2
        ),
        Scenario(
            name="unknown: undone, tombstones", plans=(plan(step("charge", **WHATEVER)),), provider=TOMBSTONES,
            cancels=1, faults=2, kinds=BODY,
        ),
        Scenario(
            name="unknown: undone, settled", plans=(plan(step("charge", **WHATEVER)),), provider=KEYS,
            late=Late.SETTLING, cancels=1, faults=2, kinds=BODY,
        ),
        Scenario(
            name="unknown: asked, settled", plans=(plan(step("charge", has_resolve=True)),), provider=ASKED,
            late=Late.SETTLING, cancels=1, faults=2, kinds=BODY,
        ),
    )  # fmt: skip


def _effects() -> tuple[Scenario, ...]:
    """A step of two guarded effects: `started`, request, `done`, and the same again."""
    two = (plan(step("charge", **WHATEVER)),)
    return (
        Scenario(
            name="two effects, keys", plans=two, provider=KEYS, late=Late.SETTLING, effects=TWO, faults=2,
            kinds=BODY | {"raise between", "lost acknowledgement"},
        ),
        Scenario(
            name="two effects, keys, cancelled", plans=two, provider=KEYS, late=Late.SETTLING, effects=TWO, cancels=1,
            faults=1, kinds=BODY | {"raise between", "lost acknowledgement", "hand back"},
        ),
        Scenario(
            name="two effects, tombstones", plans=two, provider=TOMBSTONES, effects=TWO, cancels=1, faults=1,
            kinds=BODY,
        ),
        Scenario(
            name="two effects, no keys, each call is answered", plans=two, provider=NOTHING, calm=True, effects=TWO,
            cancels=1, faults=2, kinds=frozenset({"crash", "raise between", "refusal"}),
        ),
        Scenario(
            name="two effects, a late answer that is heard", plans=two, provider=KEYS, effects=TWO, cancels=1,
            faults=2, kinds=frozenset({"freeze"}),
        ),
        Scenario(
            name="two effects, asked", plans=(plan(step("charge", has_resolve=True, **WHATEVER)),), provider=ASKED,
            late=Late.SETTLING, effects=TWO, cancels=1, faults=1, kinds=BODY,
        ),
        Scenario(
            name="two effects, a release asks for something else", plans=two, provider=KEYS, late=Late.SETTLING,
            effects=TWO, faults=2, kinds=frozenset({"release", "crash", "raise between"}),
        ),
        Scenario(
            name="two effects, an answer that cannot be stored", plans=two, provider=KEYS, effects=TWO, cancels=1,
            faults=2, kinds=frozenset({"freeze", "unstorable"}),
        ),
    )  # fmt: skip


def _rare() -> tuple[Scenario, ...]:
    """Answers that cannot be stored, operators who close sagas, keys that are forgotten, rows that are lost."""
    aged = {"key_ttl": 0.5, "max_deliveries": 4, "retry": Retry(max_attempts=4)}
    asked = plan(step("charge", has_resolve=True, **WHATEVER), pivot("ship"))
    return (
        Scenario(
            name="an answer that cannot be stored", plans=(plan(step("charge", **WHATEVER)),), provider=KEYS,
            cancels=1, aborts=1, faults=2, kinds=frozenset({"freeze", "unstorable"}),
        ),
        Scenario(
            name="keys are forgotten", plans=(plan(step("charge", **aged)),), provider=FORGETS, late=Late.LOOK,
            cancels=1, retries=1, faults=3, kinds=frozenset({"forgotten", "crash", "timeout", "hand back"}),
        ),
        Scenario(
            name="rows are lost, asked", plans=(asked,), provider=ASKED, late=Late.SETTLING, cancels=1, faults=2,
            kinds=frozenset({"rows lost", "crash", "refusal"}),
        ),
        Scenario(
            name="rows are lost, not asked", plans=(plan(step("charge", **WHATEVER)),), provider=KEYS,
            late=Late.SETTLING, retries=1, faults=3, kinds=frozenset({"rows lost", "crash", "timeout", "refusal"}),
        ),
    )  # fmt: skip
