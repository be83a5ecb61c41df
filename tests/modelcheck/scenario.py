"""What is checked: one or two small sagas, what the provider offers, and what may go wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from sagas.plan import Plan
from sagas.states import Status
from tests.modelcheck.brain import OPEN, Brain
from tests.modelcheck.provider import EVERYTHING, Provider
from tests.modelcheck.statements import ALL_RULES, Rules, Store
from tests.modelcheck.world import Left, Row, Saga, World

FAULTS: Final = frozenset({
    "crash", "freeze", "hand back", "lost acknowledgement", "timeout", "refusal", "raise", "undecided",
    "duplicate", "loss", "slow broker", "broker down", "forged",
})  # fmt: skip


class Late(StrEnum):
    """When a request lands, at the latest, whose worker does not wait for it any more."""

    EVER = "however late"
    SETTLING = "before settling"
    LOOK = "before anyone looks"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One check."""

    name: str
    plans: tuple[Plan, ...]
    provider: Provider = EVERYTHING
    late: Late = Late.EVER
    broker: bool = False  # relay and broker; else workers claim by themselves
    faults: int = 2  # at most so many in one run
    kinds: frozenset[str] = FAULTS  # of these
    cancels: int = 0
    retries: int = 0
    rules: Rules = ALL_RULES
    deadly: str = ""  # a step whose body kills every worker that runs it
    together: bool = False  # whether a relay puts several rows into one message
    workers: int = 2
    brains: tuple[Brain, ...] = field(init=False, repr=False, compare=False)
    store: Store = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "brains", tuple(Brain(plan) for plan in self.plans))
        object.__setattr__(self, "store", Store(self.brains, self.rules))

    def start(self) -> World:
        """Right after the callers have committed."""
        rows = tuple(
            Row(which, 0, which, "step", *brain.works(brain.start)[0], "", 0, due=False)
            for which, brain in enumerate(self.brains)
        )
        return World(
            sagas=tuple(Saga(brain.start) for brain in self.brains), rows=rows, messages=(),
            workers=((),) * self.workers, flight=(), pending=(), left=Left(self.faults, self.cancels, self.retries),
            next_id=len(rows),
        )  # fmt: skip

    def status(self, world: World, which: int) -> Status:
        """Where a saga stands."""
        return self.brains[which].status(world.sagas[which].state)

    def ended(self, world: World) -> bool:
        """Whether every saga is finished or parked."""
        return all(self.status(world, which) not in OPEN for which in range(len(world.sagas)))

    def name_of(self, each: object) -> str:
        """How traces name a row, a delivery or a request."""
        kind, saga = getattr(each, "kind", "step"), getattr(each, "saga", 0)
        name = f"the {kind} request".replace("late_answer request", "late answer")
        if kind == "step":
            name = f"{getattr(each, 'step')}:{getattr(each, 'direction')}"  # noqa: B009 - of three types
        return f"saga {saga + 1}'s {name}" if len(self.plans) > 1 else name
