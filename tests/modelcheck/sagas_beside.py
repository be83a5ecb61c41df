"""The small sagas whose steps run side by side, and rules without which they go wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from sagas.machine.draft import Draft
from sagas.plan import OnTimeout, StepPlan
from tests.modelcheck.mutations import Mutation
from tests.modelcheck.sagas import ASKED, KEYS, WHATEVER, local, pivot, plan, step, wait
from tests.modelcheck.sagas_waits import PROTOCOL
from tests.modelcheck.scenario import Scenario
from tests.modelcheck.statements import Rules

CRASHES: Final = frozenset({"crash", "freeze", "refusal"})


def after(one: StepPlan, *needs: str) -> StepPlan:
    """The step, needing these and no other."""
    return replace(one, after=needs)


PAIR: Final = plan(after(step("hotel")), after(step("flight")))
JOINED: Final = plan(after(step("hotel")), after(local("flight")), after(local("pay"), "hotel", "flight"))


def beside() -> tuple[Scenario, ...]:
    """All of them."""
    asked = step("flight", has_resolve=True, **WHATEVER)
    return (
        Scenario(name="two steps side by side", plans=(PAIR,), provider=KEYS, cancels=1, faults=1, kinds=CRASHES),
        Scenario(
            name="two steps side by side, one parks", plans=(PAIR,), provider=KEYS, retries=1, faults=1,
            kinds=frozenset({"timeout", "refusal"}),
        ),
        Scenario(
            name="side by side and joined", plans=(JOINED,), provider=KEYS, faults=1, kinds=PROTOCOL | {"refusal"}
        ),
        Scenario(
            name="side by side, one in doubt, then the pivot", provider=ASKED, faults=1,
            kinds=frozenset({"timeout", "refusal", "undecided", "crash"}),
            plans=(plan(after(local("hotel")), after(asked), after(pivot("pay"), "hotel", "flight")),),
        ),
        Scenario(
            name="a step beside a wait", latest=1.0, signals=("review",), faults=1,
            kinds=frozenset({"crash", "refusal"}),
            plans=(plan(after(wait("review", OnTimeout.COMPENSATE)), after(step("charge"))),),
        ),
    )  # fmt: skip


def _saga(**options: Any) -> Any:
    given: dict[str, Any] = {"name": "", "provider": KEYS, "faults": 1, "kinds": frozenset({"refusal"}), **options}
    return lambda rules: Scenario(rules=rules, **given)


OF_BESIDE: Final = (
    Mutation(
        name="a step that fails turns the saga back at once",
        because="another step may be acting beside it, and would be undone while it does",
        scenario=_saga(plans=(PAIR,)), patches=((Draft, "_beside", lambda draft, step: ()),),
    ),
    Mutation(
        name="the row of another branch is retracted",
        because="who holds it could not record what came of it, and nobody would look after it",
        scenario=_saga(plans=(PAIR,)), rules=Rules(branches_keep_their_rows=False),
    ),
)  # fmt: skip
