"""The small sagas that start a child, and rules without which they go wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from sagas import machine
from sagas.events import Begot
from sagas.plan import ChildrenPlan, StepPlan, UndoPlan
from sagas.retry import Retry
from sagas.states import Status
from tests.modelcheck import mutants
from tests.modelcheck.mutations import Mutation, ruled
from tests.modelcheck.sagas import KEYS, local, pivot, plan, step, wait
from tests.modelcheck.scenario import Scenario
from tests.modelcheck.statements import Rules

CRASHES: Final = frozenset({"crash", "freeze", "lost acknowledgement"})


def child(name: str = "kid", *, times: int = 1) -> StepPlan:
    """A step that starts the child."""
    retry = Retry(max_attempts=times, factor=1)
    queue = local("any").queue
    undo = UndoPlan(external=False, queue=queue, retry=retry, timeout=None, children=True)
    return StepPlan(name=name, external=False, queue=queue, retry=retry, undo=undo, children=ChildrenPlan())


def final(one: StepPlan) -> StepPlan:
    """The step where nothing is undone any more."""
    return replace(one, undo=None)


KID: Final = plan(local("take"))
WAITS: Final = plan(local("take"), wait("review"))
BETWEEN: Final = plan(local("reserve"), child(), local("pack"))


def family() -> tuple[Scenario, ...]:
    """All of them."""
    return (
        Scenario(name="a child between two steps", plans=(BETWEEN, KID), faults=1, kinds=CRASHES | {"refusal"}),
        Scenario(
            name="a cancel while a child is at work", plans=(plan(child()), KID), cancels=1, faults=1,
            kinds=frozenset({"crash"}),
        ),
        Scenario(
            name="a cancel while a child waits", plans=(plan(local("reserve"), child()), WAITS), waits=math.inf,
            cancels=1, faults=1, kinds=frozenset({"crash"}),
        ),
        Scenario(
            name="a child, relay and broker", plans=(plan(child()), KID), broker=True, faults=1,
            kinds=frozenset({"crash", "loss", "duplicate"}),
        ),
        Scenario(
            name="a child that is tried twice", plans=(plan(child(times=2)), KID, KID), faults=2, latest=1.0,
            kinds=frozenset({"refusal", "crash"}),
        ),
        Scenario(
            name="a child after the pivot", plans=(plan(pivot("pay"), final(child(times=3))), KID, KID, KID),
            provider=KEYS, faults=2, kinds=frozenset({"refusal"}), latest=1.0,
        ),
        Scenario(
            name="a child that parks",
            plans=(plan(local("reserve"), child()), plan(step("charge", retry=Retry(max_attempts=1)))),
            provider=KEYS, faults=1, kinds=frozenset({"timeout"}), retries=1, cancels=1,
        ),
        Scenario(
            name="a child whose result cannot be kept", plans=(BETWEEN, KID), retries=1, cancels=1, kept=False,
            faults=1, kinds=frozenset({"crash"}),
        ),
        Scenario(
            name="a child, rows lost", plans=(plan(child(), local("pack")), KID), faults=1,
            kinds=frozenset({"rows lost", "refusal"}),
        ),
    )  # fmt: skip


def _saga(*plans: Any, **options: Any) -> Any:
    given: dict[str, Any] = {"name": "", "faults": 0, "kinds": frozenset(), **options}
    return lambda rules: Scenario(rules=rules, plans=plans, **given)


_BEGOT: Final = machine.TABLE[Status.RUNNING, Begot]
_ONE: Final = _saga(plan(replace(child(), has_when=True)), KID)
_AGAIN: Final = _saga(plan(child(times=2)), KID, KID, faults=1, kinds=frozenset({"refusal"}), latest=1.0)
_LATER: Final = _saga(
    plan(child(), local("pack"), local("ship")), KID, faults=1, kinds=frozenset({"refusal"})
)  # fmt: skip

OF_FAMILY: Final = (
    Mutation(
        name="the end of a child does not wake its parent",
        because="nothing else ever makes the parent's row due",
        scenario=_ONE, rules=Rules(end_of_a_child_is_told=False),
    ),
    Mutation(
        name="a child's end counts as told by a look that has begun",
        because="that may have looked before this child had ended",
        scenario=_saga(plan(child()), WAITS, cancels=1, waits=math.inf, retries=1),
        rules=Rules(begun_look_is_no_telling=False),
    ),
    Mutation(
        name="the parent goes on without waiting for its child",
        because="the child may yet fail, or be at work",
        scenario=_AGAIN, patches=ruled("_seen_waiting", mutants.as_if_ended),
    ),
    Mutation(
        name="children are started whatever was asked for meanwhile",
        because="they cost money, and are only asked to turn back again",
        scenario=_saga(plan(child()), KID, cancels=1),
        patches=((machine.TABLE, (Status.RUNNING, Begot), replace(_BEGOT, rule=mutants.begot_all_the_same)),),
    ),
    Mutation(
        name="a cancel does not reach the child",
        because="it may wait for ever, and its parent with it",
        scenario=_saga(plan(child()), WAITS, cancels=1, waits=math.inf), rules=Rules(cancel_reaches_children=False),
    ),
    Mutation(
        name="the parent undoes earlier steps while its child is being undone",
        because="the child still relies on what they did, and may park",
        scenario=_saga(plan(local("reserve"), child(), local("pack")), KID, faults=1, kinds=frozenset({"refusal"})),
        patches=ruled("_seen_undoing", mutants.as_if_undone),
    ),
    Mutation(
        name="a child is undone before a later step of its parent",
        because="what came later may rely on it",
        scenario=_LATER, patches=ruled("_latest", mutants.earliest),
    ),
)  # fmt: skip
