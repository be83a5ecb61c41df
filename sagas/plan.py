"""The plan of a saga: what the state machine needs to know of a definition, as plain data.

A `Saga` class is compiled to one `Plan` when it is created. The machine sees plans only,
never user code, so that a decision depends on nothing but values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from sagas.retry import Retry


class OnUnknown(StrEnum):
    """What becomes of a step before the pivot whose outcome cannot be found out."""

    PARK = "park"  # a person decides
    COMPENSATE = "compensate"  # the author's word that the undo is safe by idempotency key


class OnTimeout(StrEnum):
    """What becomes of a wait when no signal came in time."""

    PARK = "park"  # a person decides
    COMPENSATE = "compensate"  # the saga turns back
    SKIP = "skip"  # the saga goes on without


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitPlan:
    """What a step waits for instead of running a body."""

    signal: bool  # False: for a time only
    on_timeout: OnTimeout = OnTimeout.PARK


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildrenPlan:
    """The sagas that a step starts, and for whose end it waits."""

    at_once: int = 1  # so many run at the same time, at most
    tolerated: int | None = 0  # so many may come to nothing; None: all of them


@dataclass(frozen=True, kw_only=True, slots=True)
class UndoPlan:
    """The compensation of one step."""

    external: bool
    queue: str
    retry: Retry
    timeout: float | None  # seconds a body may take; None: the store's setting
    has_resolve: bool = False
    accepts_unknown: bool = False  # may be called with UNKNOWN in place of a result
    children: bool = False  # it has no body: the step's children are undone


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPlan:
    """One declared step."""

    name: str
    external: bool
    queue: str
    retry: Retry
    timeout: float | None = None  # seconds a body may take; None: the store's setting
    key_ttl: float | None = None  # seconds the other side remembers our idempotency key
    pivot: bool = False
    has_resolve: bool = False
    on_unknown: OnUnknown = OnUnknown.PARK
    undo: UndoPlan | None = None  # None: nothing to undo
    settle_after: float = 60.0  # seconds between an undo as unknown and the last look
    max_deliveries: int = 5  # begins without an answer before the step parks
    after: tuple[str, ...] | None = None  # steps that have to have ended; None: the one declared before it
    wait: WaitPlan | None = None  # None: it has a body
    has_when: bool = False  # it is skipped where its condition is false
    has_lock: bool = False  # it takes semantic locks before its body begins
    priority: int = 0  # of its rows, and of those of its compensation: the higher goes first
    children: ChildrenPlan | None = None  # it has no body of its own: it starts other sagas
    continues: bool = False  # it may return ContinueAs

    @property
    def has_body(self) -> bool:
        """Whether it does something itself, and does not only wait."""
        return self.wait is None and self.children is None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A saga definition as the machine sees it: steps in declared order."""

    name: str
    version: int
    steps: tuple[StepPlan, ...]
    by_name: dict[str, StepPlan] = field(init=False, repr=False, compare=False)
    needs: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)  # step -> what has to have ended
    linear: bool = field(init=False, repr=False, compare=False)  # every step needs just the one before it

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {step.name: step for step in self.steps})
        before = {step.name: (self.steps[i - 1].name,) if i else () for i, step in enumerate(self.steps)}
        needs = {step.name: before[step.name] if step.after is None else step.after for step in self.steps}
        object.__setattr__(self, "needs", needs)
        object.__setattr__(self, "linear", needs == before)

    @cached_property
    def pivot(self) -> int | None:
        """Position of the pivot, or None when every step can be undone."""
        return next((i for i, step in enumerate(self.steps) if step.pivot), None)

    def position(self, step: str) -> int:
        """Position of a step in declared order.

        Raises:
            KeyError: the plan has no such step.
        """
        return self.steps.index(self.by_name[step])

    @cached_property
    def has_signals(self) -> bool:
        """Whether any step waits for a signal."""
        return any(step.wait is not None and step.wait.signal for step in self.steps)

    @cached_property
    def has_locks(self) -> bool:
        """Whether its sagas may hold semantic locks."""
        return any(step.has_lock for step in self.steps)

    @cached_property
    def retriable(self) -> frozenset[str]:
        """The steps that follow the pivot, directly or not."""
        if self.pivot is None:
            return frozenset()
        return frozenset(self.following(self.steps[self.pivot].name))

    def following(self, step: str) -> tuple[str, ...]:
        """The steps that need this one, directly or not, in declared order."""
        found = {step}
        for each in self.steps:
            if found & set(self.needs[each.name]):
                found.add(each.name)
        return tuple(each.name for each in self.steps if each.name in found and each.name != step)

    def may_turn_back(self, step: str) -> bool:
        """Whether a failure of this step can still be answered by compensation (up to and with the pivot)."""
        return step not in self.retriable
