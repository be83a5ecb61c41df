"""The small sagas in which an operator says what became of a step, and rules without which that goes wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from sagas import machine
from sagas.events import MarkNotDone
from sagas.states import Status
from tests.modelcheck import mutants_resolved
from tests.modelcheck.mutations import Mutation
from tests.modelcheck.sagas import COMPENSATE, KEYS, NOTHING, ONCE, TWO, local, pivot, plan, step, undo
from tests.modelcheck.sagas_beside import PAIR
from tests.modelcheck.scenario import Late, Scenario

FROZEN: Final = frozenset({"timeout", "freeze"})
_ONCE: Final = step("charge", retry=ONCE)
_UNDO_ONCE: Final = step("charge", undo=undo(retry=ONCE))
_RULE: Final = machine.TABLE[Status.PARKED, MarkNotDone]


def resolved() -> tuple[Scenario, ...]:
    """All of them."""
    return (
        Scenario(
            name="an operator's word about a step", plans=(plan(local("reserve"), _ONCE, pivot("ship")),),
            provider=KEYS, late=Late.SETTLING, resolves=1, retries=1, faults=1, kinds=FROZEN,
        ),
        Scenario(
            name="an operator's word about a step, cancelled", plans=(plan(local("reserve"), _ONCE),), provider=KEYS,
            late=Late.LOOK, resolves=1, cancels=1, faults=2, kinds=FROZEN,
        ),
        Scenario(
            name="an operator's word, no keys", plans=(plan(_ONCE, local("book")),), provider=NOTHING, late=Late.LOOK,
            resolves=1, faults=2, kinds=frozenset({"timeout", "crash"}),
        ),
        Scenario(
            name="an operator's word about a pivot", plans=(plan(local("reserve"), pivot("ship", retry=ONCE)),),
            provider=KEYS, late=Late.LOOK, resolves=1, faults=1, kinds=FROZEN | {"crash"},
        ),
        Scenario(
            name="an operator's word about two effects", plans=(plan(_ONCE),), provider=KEYS, effects=TWO, resolves=1,
            late=Late.SETTLING, faults=2, kinds=frozenset({"freeze", "crash"}),
        ),
        Scenario(
            name="an operator's word about an undo", plans=(plan(local("reserve"), _UNDO_ONCE),),
            provider=KEYS, resolves=1, cancels=1, retries=1, faults=2, kinds=FROZEN, late=Late.LOOK,
        ),
        Scenario(
            name="an operator's word about an undo, settled", late=Late.SETTLING, resolves=1, faults=2, provider=KEYS,
            plans=(plan(replace(_ONCE, undo=undo(accepts_unknown=True, retry=ONCE), on_unknown=COMPENSATE)),),
            kinds=frozenset({"timeout"}),
        ),
        Scenario(
            name="two steps side by side, an operator's word about one", plans=(PAIR,), provider=KEYS, resolves=2,
            late=Late.LOOK, faults=1, kinds=frozenset({"timeout", "refusal"}),
        ),
    )  # fmt: skip


def _saga(*kinds: str, plans: Any, **options: Any) -> Any:
    given: dict[str, Any] = {"name": "", "provider": KEYS, "faults": 1, "resolves": 1, "kinds": frozenset(kinds)}
    return lambda rules: Scenario(rules=rules, plans=plans, **{**given, **options})


OF_RESOLVED: Final = (
    Mutation(
        name="an operator's word counts although the saga has moved on since",
        because="a retry may have done meanwhile what they say was not done",
        scenario=_saga("timeout", plans=(plan(_ONCE),), late=Late.LOOK, retries=1, faults=2),
        patches=((machine.TABLE, (Status.PARKED, MarkNotDone), replace(_RULE, rule=mutants_resolved.whenever)),),
    ),
    Mutation(
        name="a step that is said not to have happened keeps its key open",
        because="a worker that was frozen before its next effect would have it after all",
        scenario=_saga("freeze", "crash", plans=(plan(_ONCE),), effects=TWO, faults=2, late=Late.SETTLING),
        patches=((machine.TABLE, (Status.PARKED, MarkNotDone), replace(_RULE, rule=mutants_resolved.closes_nothing)),),
    ),
)  # fmt: skip
