"""The same for waits, signals, deadlines, pauses, redos, conditions and runs that go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from sagas import fold, machine, takeover
from sagas.events import Direction, Kind, Redo
from sagas.machine import look
from sagas.plan import OnTimeout
from sagas.states import Status
from tests.modelcheck import mutants, mutants_waits
from tests.modelcheck.mutations import Mutation, one, ruled
from tests.modelcheck.sagas import KEYS, ONCE, TWO, WHATEVER, local, pivot, plan, step, wait
from tests.modelcheck.scenario import Late, Scenario
from tests.modelcheck.statements import Rules


def saga(*kinds: str, plans: Any, faults: int = 1, **options: Any) -> Any:
    """A scenario of these plans."""
    return lambda rules: Scenario(
        name="", plans=plans, rules=rules, kinds=frozenset(kinds), faults=faults if kinds else 0,
        **{"provider": KEYS, "latest": 1.0, **options},
    )  # fmt: skip


_REVIEW: Final = (plan(wait("review"), local("book")),)
_BESIDE: Final = (plan(replace(wait("review"), after=()), replace(step("charge"), after=())),)
_ONE: Final = plan(local("work"))
_SKIPS: Final = plan(wait("review", OnTimeout.SKIP), local("work"))
_KEPT: Final = plan(local("work"), wait("review", OnTimeout.SKIP), local("book"))
_CLOSED_BY: Final = machine.TABLE[Status.PARKED, Redo]
_LEFT_OPEN: Final = (
    (machine.TABLE, (Status.PARKED, Redo), replace(_CLOSED_BY, rule=mutants_waits.redo_closes_nothing)),
)

_SIGNALS: Final = (
    Mutation(
        name="a signal makes a held row due",
        because="a second worker would act beside the first",
        scenario=saga(plans=_BESIDE, signals=("review",)), rules=Rules(wake_spares_held_rows=False),
    ),
    Mutation(
        name="a signal does not bump seq",
        because="a decision made before it, such as its timeout, would be written over it",
        scenario=saga(plans=_REVIEW, signals=("review",)), rules=Rules(signal_bumps_seq=False),
    ),
    Mutation(
        name="a signal whose saga ends between its begin and its record is dropped",
        because="another run goes on from there",
        scenario=saga(plans=(_SKIPS, _SKIPS), runs=True, signals=("review",)),
        rules=Rules(request_of_an_ended_saga_goes_back=False),
    ),
    Mutation(
        name="signals are applied in any order",
        because="two workers may claim two signals, and the second is the faster one",
        scenario=saga(plans=_REVIEW, signals=("review", "review")), rules=Rules(signals_in_order=False),
    ),
    Mutation(
        name="signals that are carried over stand behind those still on their way",
        because="their rows are younger, although they were sent before",
        scenario=saga(plans=(_KEPT, _KEPT), runs=True, signals=("review", "review")),
        rules=Rules(carried_come_first=False),
    ),
    Mutation(
        name="a timeout is begun although a signal waits to be applied",
        because="whoever sent it in time was told so",
        scenario=saga(plans=_REVIEW, signals=("review",)), rules=Rules(signal_before_the_timeout=False),
    ),
)  # fmt: skip

_TIMES: Final = (
    Mutation(
        name="a timeout is decided from when its row is due",
        because="claims, leases, wakes and hand-backs overwrite that",
        scenario=saga(plans=_REVIEW, signals=("review",)),
        patches=((takeover, "_assess_before_body", mutants_waits.due_is_timed_out),),
    ),
    Mutation(
        name="waking a sleep early ends it",
        because="a cancel, a resume or an operator's retry makes its row due",
        scenario=saga(plans=(plan(wait("night", None), local("book")),)),
        patches=((takeover, "_assess_before_body", mutants_waits.any_wake_ends_a_sleep),),
    ),
    Mutation(
        name="a deadline is ignored",
        because="nobody wants the order any more",
        scenario=saga(plans=(plan(local("reserve"), step("charge")),), deadline=1.0),
        patches=ruled("turning", mutants_waits.only_a_cancel),
    ),
    Mutation(
        name="a deadline is ignored while a step is in doubt",
        because="a step that can be undone as unknown need not be tried again",
        scenario=saga("timeout", plans=(plan(step("charge", **WHATEVER)),), deadline=1.0, late=Late.SETTLING),
        patches=ruled("stopping", mutants_waits.not_in_doubt),
    ),
    Mutation(
        name="a deadline undoes what comes before a pivot in doubt",
        because="the pivot may have happened, and cannot be undone",
        scenario=saga(
            "timeout", plans=(plan(local("reserve"), pivot("ship")),), deadline=1.0
        ),
        patches=(
            *ruled("stopping", mutants_waits.pivot_in_doubt_too), *ruled("_give_up", mutants.pivot_as_any_step),
        ),
    ),
)  # fmt: skip

_OPERATORS: Final = (
    Mutation(
        name="a pause does not stop who goes on",
        because="the worker that has the row would begin the next step in the same commit",
        scenario=saga(plans=(plan(local("reserve"), step("charge")),), pauses=1), patches=((look, "PAUSE", 0.0),),
    ),
    Mutation(
        name="begin does not mind a pause",
        because="a row may be due, or published, long before",
        scenario=saga(plans=(plan(step("charge")),), pauses=1), rules=Rules(begin_minds_pause=False),
    ),
    Mutation(
        name="work that is put off by a pause forgets its unknown attempts",
        because="it was begun before, by a worker that died",
        scenario=saga(
            "crash", "refusal", plans=(plan(step("charge", **WHATEVER)),), faults=2, pauses=1, late=Late.SETTLING
        ), rules=Rules(hold_up_takes_own_off=False),
    ),
    Mutation(
        name="a redo under the former key",
        because="the provider gives its old answer; the new key and the end of the former one each protect from it",
        scenario=saga("timeout", plans=(plan(step("charge", retry=ONCE)),), redos=1),
        patches=((fold.EVOLVE, Kind.REDONE, mutants_waits.redone_under_the_former_key), *_LEFT_OPEN),
    ),
    Mutation(
        name="a redo leaves the former key open",
        because="a worker that was frozen between two effects would have the second under the former key",
        scenario=one("freeze", "crash", faults=2, late=Late.SETTLING, effects=TWO, retry=ONCE, redos=1),
        patches=_LEFT_OPEN,
    ),
)  # fmt: skip

_CHOICES: Final = (
    Mutation(
        name="a condition is looked at again once its step was chosen",
        because="it may be false by then, and the step has begun",
        scenario=saga("crash", plans=(plan(step("charge", has_when=True, **WHATEVER)),)),
        patches=((takeover._ASSESS, Direction.DO, mutants_waits.looked_at_after_a_crash),),
    ),
    Mutation(
        name="the next run is started outside of the record",
        because="a worker that dies between the two starts no run, or two",
        scenario=saga("crash", plans=(_ONE, _ONE), runs=True), rules=Rules(continues_in_the_record=False),
    ),
    Mutation(
        name="a cancel is of the run alone that it was asked of",
        because="where that has ended meanwhile the next one would go on, and nobody would know",
        scenario=saga(plans=(_ONE, _ONE), runs=True, cancels=1), rules=Rules(requests_follow_runs=False),
    ),
    Mutation(
        name="a cancel whose run ends between its begin and its record is dropped",
        because="the next run would go on, and nobody would know",
        scenario=saga(plans=(_ONE, _ONE), runs=True, cancels=1),
        rules=Rules(request_of_an_ended_saga_goes_back=False),
    ),
    Mutation(
        name="an answer that asks for another run is kept like any late answer",
        because="the dedupe table says that the step is done, and not that a run has to follow",
        scenario=saga(
            "freeze", "crash", "lost acknowledgement", faults=2, runs=True, late=Late.SETTLING,
            plans=(plan(step("charge", **WHATEVER)),) * 2,
        ), rules=Rules(answer_with_a_next_is_not_kept=False),
    ),
)  # fmt: skip

OF_WAITS: Final = (*_SIGNALS, *_TIMES, *_OPERATORS, *_CHOICES)
