"""What the check would notice: each mutation takes away one rule, and one of the invariants then fails.

Where two guards protect against the same thing, both are taken away; `because` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from sagas import fold
from sagas.events import Kind
from tests.modelcheck import mutants
from tests.modelcheck.sagas import ALL, ASKED, KEYS, ONCE, WHATEVER, pivot, plan, poison, step
from tests.modelcheck.scenario import Late, Scenario
from tests.modelcheck.statements import ALL_RULES, Rules

Patch = tuple[Any, Any, Any]  # an object (or dict), a name in it, and what to put there


def ruled(name: str, instead: Any) -> tuple[Patch, ...]:
    """Another function in place of one of the machine's rules."""
    return tuple((module, name, instead) for module in mutants.places(name))


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One rule taken away, and a small scenario in which that shows."""

    name: str
    because: str  # what the rule is for
    scenario: Callable[[Rules], Scenario]
    rules: Rules = ALL_RULES
    patches: tuple[Patch, ...] = ()

    @contextmanager
    def applied(self) -> Iterator[Scenario]:
        """The scenario with the rule taken away."""
        before = [(target, name, _get(target, name)) for target, name, _ in self.patches]
        for target, name, value in self.patches:
            _set(target, name, value)
        try:
            yield self.scenario(self.rules)
        finally:
            for target, name, value in before:
                _set(target, name, value)


def _get(target: Any, name: Any) -> Any:
    return target[name] if isinstance(target, dict) else getattr(target, name)


def _set(target: Any, name: Any, value: Any) -> None:
    if isinstance(target, dict):
        target[name] = value
    else:
        setattr(target, name, value)


# --- the scenarios ------------------------------------------------------------------------------------------------


_WORLD: Final = ("provider", "late", "broker", "effects", "calm", "retries", "redos")


def one(*kinds: str, faults: int = 1, cancels: int = 0, **options: Any) -> Callable[[Rules], Scenario]:
    """One external step; options of the step and of the scenario."""
    given = {name: options.pop(name) for name in _WORLD if name in options}
    planned = options.pop("plan", None) or plan(step("charge", **options))
    return lambda rules: Scenario(
        name="", plans=(planned,), rules=rules, faults=faults if kinds else 0, kinds=frozenset(kinds), cancels=cancels,
        **{"provider": KEYS, **given},
    )  # fmt: skip


PROTOCOL: Final = (
    Mutation(
        name="begin does not consume the token",
        because="who was overtaken keeps a valid token",
        scenario=one("freeze"), rules=Rules(begin_consumes_token=False),
    ),
    Mutation(
        name="begin does not ask whether the row is published",
        because="a token that nobody issued may be guessed",
        scenario=one("forged", broker=True), rules=Rules(begin_wants_publication=False),
    ),
    Mutation(
        name="record without the seq check",
        because="a cancel that came in between would be overwritten",
        scenario=one(cancels=1), rules=Rules(record_checks_seq=False),
    ),
    Mutation(
        name="record without the token check",
        because="who was overtaken would move the row under its new holder",
        scenario=one("freeze", "timeout", faults=2), rules=Rules(record_checks_token=False),
    ),
    Mutation(
        name="cancel does not bump seq",
        because="a decision made before it would be written after it",
        scenario=one(cancels=1), rules=Rules(cancel_bumps_seq=False),
    ),
    Mutation(
        name="token not bumped by record while the acknowledgement is lost",
        because="one answer would be recorded twice; the token and the look into the log each protect against it",
        scenario=one("timeout", "lost acknowledgement", faults=2),
        rules=Rules(record_bumps_token=False, lost_ack_looks_in_log=False),
    ),
    Mutation(
        name="after a lost acknowledgement any entry with that seq and token counts",
        because="rows count their tokens each for itself, so the entry may be another row's",
        scenario=one("lost acknowledgement", cancels=1, plan=plan(step("charge"), step("book"))),
        rules=Rules(log_entry_is_compared=False),
    ),
    Mutation(
        name="after a lost acknowledgement the worker goes on with a row that is not kept for it",
        because="somebody else may have it by then",
        scenario=one("lost acknowledgement", cancels=1, plan=plan(step("charge"), step("book"))),
        rules=Rules(goes_on_with_its_own_only=False),
    ),
    Mutation(
        name="cancel makes a held row due",
        because="a second worker would act beside the first",
        scenario=one(cancels=1), rules=Rules(wake_spares_held_rows=False),
    ),
    Mutation(
        name="Refused trusted although an earlier attempt is unknown",
        because="the earlier request may land yet",
        scenario=one("timeout", "refusal", faults=2), patches=ruled("ever_unknown", mutants.never_unknown),
    ),
    Mutation(
        name="unknown derived from deliveries: forgotten by resume",
        because="a resumed saga has a new row, which counts from zero",
        scenario=one("timeout", cancels=1, retry=ONCE),
        patches=((fold.EVOLVE, Kind.RETRIED, mutants.resumes_afresh),),
    ),
    Mutation(
        name="unknown derived from deliveries: forgotten by hand-back",
        because="a row given back was begun before, by a worker that died",
        scenario=one("crash", "hand back", faults=2, cancels=1), rules=Rules(hand_back_takes_own_off=False),
    ),
    Mutation(
        name="unknown derived from deliveries: forgotten by continuation",
        because="record counts the deliveries from zero again",
        scenario=one("timeout", cancels=1), patches=((fold, "_counted", mutants.forgetful),),
    ),
    Mutation(
        name="an unknown pivot undone",
        because="it may have happened, and cannot be undone",
        scenario=one("timeout", plan=plan(step("charge"), pivot("ship", retry=ONCE))),
        patches=ruled("_give_up", mutants.pivot_as_any_step),
    ),
    Mutation(
        name="no settling",
        because="a request may land after the undo",
        scenario=one("timeout", late=Late.SETTLING, retry=ONCE, **WHATEVER),
        patches=ruled("_needs_settling", lambda *_: False),
    ),
    Mutation(
        name="a late answer counts as settled by a look that did not know of it",
        because="it was asked before the request landed",
        scenario=one("freeze", cancels=1, provider=ASKED, has_resolve=True),
        patches=((fold.EVOLVE, Kind.SETTLE_DONE, mutants.settled_whatever_came),),
    ),
    Mutation(
        name="settling under the old key",
        because="the provider gives the answer of the first undo again, and does nothing",
        scenario=one("timeout", late=Late.SETTLING, retry=ONCE, **WHATEVER),
        rules=Rules(settling_has_its_own_key=False),
    ),
    Mutation(
        name="no undo after NOT_DONE at a provider with tombstones",
        because="the request may land after it was asked about; the undo plants the tombstone that stops it",
        scenario=one("timeout", provider=ALL, has_resolve=True, retry=ONCE, **WHATEVER),
        patches=ruled("_needs_undo", mutants.not_done_needs_no_undo),
    ),
    Mutation(
        name="a poison row published with neighbours",
        because="they would be blamed for the workers it kills",
        scenario=lambda rules: replace(poison(rules), faults=0), rules=Rules(begun_travels_alone=False),
    ),
)  # fmt: skip
