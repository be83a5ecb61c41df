"""What is checked: one or two small sagas, what the provider offers, and what may go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from sagas.machine import TERMINAL
from sagas.plan import Plan
from sagas.states import Status
from tests.modelcheck.brain import OPEN, Brain, named
from tests.modelcheck.family import at_rest
from tests.modelcheck.provider import EVERYTHING, Provider
from tests.modelcheck.statements import ALL_RULES, Rules, Store
from tests.modelcheck.world import Left, Row, Saga, World

FAULTS: Final = frozenset({
    "crash", "freeze", "hand back", "lost acknowledgement", "timeout", "refusal", "raise", "undecided",
    "duplicate", "loss", "slow broker", "broker down", "forged", "unstorable", "raise between",
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
    aborts: int = 0
    pauses: int = 0
    redos: int = 0
    resolves: int = 0  # what an operator decides of a parked step
    blind: bool = False  # what happened under a former key counts, also where an operator could not be sure
    signals: tuple[str, ...] = ()  # to which waits, in the order in which they are sent
    unstarted: bool = False  # the saga starts at any moment
    waits: float = 1.0  # how long a wait lasts
    deadline: float | None = None
    latest: float = 0.0  # up to when time passes
    kept: bool = True  # whether what children return can be kept; else their parent parks
    runs: bool = False  # the plans are runs of one saga, each of which goes on from the one before
    effects: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # steps that guard several, by name
    calm: bool = False  # a request that was sent is answered, and its guarded answer kept
    rules: Rules = ALL_RULES
    deadly: str = ""  # a step whose body kills every worker that runs it
    together: bool = False  # whether a relay puts several rows into one message
    workers: int = 2
    brains: tuple[Brain, ...] = field(init=False, repr=False, compare=False)
    store: Store = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.rules.key_ttl_is_minded:
            blind = (replace(each, key_ttl=None) for each in self.plans[0].steps)
            object.__setattr__(self, "plans", (replace(self.plans[0], steps=tuple(blind)),))
        object.__setattr__(self, "brains", tuple(Brain(plan, self.deadline) for plan in self.plans))
        object.__setattr__(self, "store", Store(self.brains, self.rules, timed=self.latest > 0, effects=self.effects))
        self.store.latest, self.store.kept = self.latest, self.kept

    def start(self) -> World:
        """Right after the callers have committed."""
        works = [(which, work) for which, brain in enumerate(self.started) for work in brain.works(brain.start)]
        rows = tuple(Row(id, 0, which, "step", *work, "", 0, due=False) for id, (which, work) in enumerate(works))
        return World(
            sagas=tuple(Saga(brain.start) for brain in self.started), rows=rows, messages=(),
            workers=((),) * self.workers, flight=(), pending=(), next_id=len(rows),
            left=Left(
                faults=self.faults, cancels=self.cancels, retries=self.retries, aborts=self.aborts,
                pauses=self.pauses, redos=self.redos, resolves=self.resolves, starts=int(self.unstarted),
                signals=self.signals,
            ),
        )  # fmt: skip

    @property
    def has_waits(self) -> bool:
        """Whether a saga may wait."""
        return any(step.wait for plan in self.plans for step in plan.steps)

    @property
    def may_leave_rows(self) -> bool:
        """Whether a decision may leave a row behind that somebody holds, and that stands for nothing any more."""
        return self.has_waits or self.store.family or not all(plan.linear for plan in self.plans)

    @property
    def started(self) -> tuple[Brain, ...]:
        """The sagas that are there from the beginning."""
        return () if self.unstarted else self.brains[:1] if self.runs or self.store.family else self.brains

    def effects_of(self, step: str, generation: int = 0) -> tuple[str, ...]:
        """How the other side knows what a step does: one effect, or several."""
        names = tuple(f"{step}/{name}" for name in self.effects.get(step, ())) or (step,)
        return tuple(named(name, generation) for name in names)

    def paused(self, world: World, which: int) -> bool:
        """Whether a saga is paused."""
        return self.brains[which].states[world.sagas[which].state].paused

    def status(self, world: World, which: int) -> Status:
        """Where a saga stands."""
        return self.brains[which].status(world.sagas[which].state)

    def ended(self, world: World) -> bool:
        """Whether every saga is finished without a row, parked or paused."""
        left = any(row.kind == "step" and self.status(world, row.saga) in TERMINAL for row in world.rows)
        return not left and all(
            self.status(world, which) not in OPEN or self.paused(world, which) or at_rest(self, world)
            for which in range(len(world.sagas))
        )

    def name_of(self, each: object) -> str:
        """How traces name a row, a delivery or a request."""
        kind, saga = getattr(each, "kind", "step"), getattr(each, "saga", 0)
        name = f"the {kind} request".replace("late_answer request", "late answer")
        if kind == "signal":
            name = f"signal {getattr(each, 'number')}"  # noqa: B009 - of two types
        if kind == "step":
            name = f"{getattr(each, 'step')}:{getattr(each, 'direction')}"  # noqa: B009 - of three types
        return f"saga {saga + 1}'s {name}" if len(self.plans) > 1 else name
