"""What may be asked of a saga now, in words: the machine is asked what would come of it, so the two cannot disagree.

A new action is one entry of `OFFERS`. Its name is the kind of the request that `sagas.engine.request` inserts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from sagas import machine
from sagas.events import (
    ABOUT_A_STEP,
    Abort,
    Cancel,
    Event,
    MarkDone,
    MarkNotDone,
    MarkUndone,
    Pause,
    Redo,
    Resume,
    RetryNow,
    Signal,
    SkipStep,
)
from sagas.plan import Plan, StepPlan
from sagas.states import State


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """Something that a person may ask of a saga as it stands."""

    name: str  # what `sagas.engine.request` calls it
    does: str  # a sentence: what will happen to this saga
    overrides: bool  # goes against what its definition says happens next, so ask a person for the reason
    step: str | None = None  # the step it is about, where it is about one


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """One action before it is known which saga it is about."""

    event: Callable[[str], Event]  # for the name of a step
    does: str
    does_parked: str = ""  # what it does to a saga that waits for a person, where that is something else
    does_here: Mapping[str, str] = field(default_factory=dict)  # to steps that ask nobody outside, by `_sort`
    overrides: bool = False


OFFERS: Final[dict[str, Offer]] = {
    "retry": Offer(
        event=lambda step: RetryNow(),
        does="If the saga waits for its next attempt, that is due now. Nothing else changes.",
        does_parked="The saga goes on where it parked, with a new budget of attempts.",
    ),
    "cancel": Offer(
        event=lambda step: Cancel(),
        does="The saga turns back: work in flight is waited for, then what was done is undone, last step first.",
        does_parked="The saga turns back: it asks what became of the step it parked over, without running it again, "
        "then what was done is undone, last step first. It parks again if that cannot be found out.",
    ),
    "abort": Offer(
        event=lambda step: Abort(),
        does="The saga is closed as it is: nothing more of it begins and nothing is undone; sagas that it started go "
        "on. This is final.",
        overrides=True,
    ),
    "pause": Offer(
        event=lambda step: Pause(),
        does="Nothing more of the saga begins until it is resumed; what is under way is finished and recorded.",
    ),
    "resume": Offer(event=lambda step: Resume(), does="The saga goes on where it was paused."),
    "redo": Offer(
        event=lambda step: Redo(step),
        does="What is known about this step is forgotten, and it is done again under a new idempotency key: "
        "if it did happen, it happens twice.",
        does_here={
            "local": "What is known about this step is forgotten, and it is done again: "
            "if it did happen, what it wrote is written twice.",
            "wait": "What is known about this step is forgotten, and the saga waits again.",
            "children": "What is known about this step is forgotten, and it starts what it starts anew.",
        },
        overrides=True,
    ),
    "mark_done": Offer(
        event=lambda step: MarkDone(step),
        does="The step counts as done, with the result that you give, and the saga goes on with the next one.",
        overrides=True,
    ),
    "mark_not_done": Offer(
        event=lambda step: MarkNotDone(step),
        does="The step counts as not happened, and the saga turns back: what was done before it is undone, last step "
        "first. The compensation of the step itself is called only where its outcome was unknown and it accepts that.",
        overrides=True,
    ),
    "skip": Offer(
        event=lambda step: SkipStep(step),
        does="The saga goes on without this step. Whatever it may have done stays: it is never undone.",
        overrides=True,
    ),
    "mark_undone": Offer(
        event=lambda step: MarkUndone(step),
        does="The step counts as undone, by hand, and the saga goes on undoing what was done before it.",
        overrides=True,
    ),
}


def allowed_actions(plan: Plan, state: State) -> tuple[Action, ...]:
    """The actions that would change something, in the order of `OFFERS`; one for each step where they are about steps.

    Args:
        plan: what the saga's definition says.
        state: where the saga stands.
    """
    parked = machine.parked(state)
    return tuple(
        Action(
            name=name,
            does=(parked and offer.does_parked) or _does(plan, offer, step),
            overrides=offer.overrides,
            step=step,
        )
        for name, offer in OFFERS.items()
        for step in _targets(plan, name)
        if changes_something(plan, state, offer.event(step or ""))
    )


def expected_signals(plan: Plan, state: State) -> tuple[str, ...]:
    """The waits whose signal would still be taken: that of now, and those that the saga may come to.

    Args:
        plan: what the saga's definition says.
        state: where the saga stands.
    """
    return tuple(
        step.name
        for step in plan.steps
        if step.wait is not None
        and step.wait.signal
        and not machine.step_of(state, step.name).ended
        and changes_something(plan, state, Signal(step.name, Raw(b"null")))
    )


def _does(plan: Plan, offer: Offer, step: str | None) -> str:
    return offer.does if step is None else offer.does_here.get(_sort(plan.by_name[step]), offer.does)


def _sort(planned: StepPlan) -> str:
    if not planned.has_body:
        return "wait" if planned.children is None else "children"
    return "external" if planned.external else "local"


def _targets(plan: Plan, name: str) -> Iterator[str | None]:
    if name in ABOUT_A_STEP:
        yield from plan.by_name
    else:
        yield None


def changes_something(plan: Plan, state: State, event: Event) -> bool:
    """Whether an event does more to a saga than leave a note in its log.

    Args:
        plan: what the saga's definition says.
        state: where the saga stands.
        event: what it is told.
    """
    if not machine.answers(state.status, type(event)):
        return False
    try:
        decision = machine.decide(plan, state, event)
    except KeyError:  # the state has a step that this definition lacks: no worker could apply it either
        return False
    return decision.wake or replace(decision.state, seq=state.seq) != state
