"""The small sagas with semantic locks, and rules without which they go wrong.

Who holds a lock is not modelled: whenever a step is to take one, another saga may hold it. What is checked is the
machine's part: a step that waits has not begun, forgets nothing, and ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from msgspec.structs import replace as replace_struct

from sagas import machine
from sagas.events import Blocked
from sagas.machine import forward
from sagas.plan import StepPlan
from sagas.states import Status
from tests.modelcheck.mutations import Mutation
from tests.modelcheck.sagas import ALL, KEYS, ONCE, WHATEVER, local, plan, step
from tests.modelcheck.sagas_beside import after
from tests.modelcheck.scenario import Scenario


def locks(one: StepPlan) -> StepPlan:
    """The step, which takes a semantic lock before its body."""
    return replace(one, has_lock=True)


def locking() -> tuple[Scenario, ...]:
    """All of them."""
    return (
        Scenario(
            name="a lock before an external step", latest=1.0, cancels=1, faults=1, provider=ALL,
            kinds=frozenset({"crash", "freeze"}),
            plans=(plan(locks(step("charge", **WHATEVER)), local("book")),),
        ),
        Scenario(
            name="a lock before an external step that has one attempt", latest=1.0, faults=1, provider=KEYS,
            kinds=frozenset({"crash", "freeze", "timeout"}), retries=1,
            plans=(plan(locks(step("charge", retry=ONCE))),),
        ),
        Scenario(
            name="a lock before a local step", latest=1.0, cancels=1, faults=1, provider=KEYS,
            kinds=frozenset({"crash", "freeze"}), plans=(plan(step("charge"), locks(local("book"))),),
        ),
        Scenario(
            name="a lock before one of two steps side by side", latest=1.0, faults=1, provider=KEYS,
            kinds=frozenset({"crash", "refusal"}), plans=(plan(after(locks(step("hotel"))), after(local("flight"))),),
        ),
    )  # fmt: skip


def _forgets(d: Any, e: Blocked) -> None:
    """A wait for a lock that takes the deliveries before it for nothing."""
    forward.do_blocked(d, replace_struct(e, attempt=replace_struct(e.attempt, deliveries=1)))


_BLOCKED: Final = machine.TABLE[Status.RUNNING, Blocked]
OF_LOCKS: Final = (
    Mutation(
        name="a step that waits for a lock forgets a worker that died",
        because="it may have had the lock and begun its body, and a refusal after that would leave the effect standing",
        scenario=lambda rules: Scenario(
            name="", rules=rules, latest=1.0, provider=ALL, faults=1, kinds=frozenset({"crash"}),
            plans=(plan(locks(step("charge", **WHATEVER))),),
        ),
        patches=((machine.TABLE, (Status.RUNNING, Blocked), replace(_BLOCKED, rule=_forgets)),),
    ),
)  # fmt: skip
