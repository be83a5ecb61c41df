"""What a worker may do with the delivery it works on until an event has come of it: the steps of `sagas.body`."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sagas.machine.look import may_leave_unknown
from tests.modelcheck import provider
from tests.modelcheck.brain import RESULT, named
from tests.modelcheck.provider import CLOSED, NOTHING
from tests.modelcheck.scenario import Late, Scenario
from tests.modelcheck.world import (
    ANSWER,
    BEGUN,
    LOCKED,
    READY,
    TOLD,
    WAITING,
    Call,
    Delivery,
    Request,
    World,
    held,
    with_saga,
    with_worker,
)

Takes = tuple[str, World, str]  # what happened, the world after it, and the fault it takes


def land(scenario: Scenario, world: World, request: Request) -> tuple[World, int]:
    """A request arrives at the provider. Returns what it answers."""
    saga = world.sagas[request.saga]
    if request.direction == "do":
        name = named(request.effect or request.step, request.redone)
        effect, answer = provider.do(scenario.provider, saga.effect(name))
        return with_saga(world, request.saga, saga.with_effect(name, effect)), answer
    for place, name in enumerate(scenario.effects_of(request.step, request.redone)):
        argument = provider.share(request.argument, place) if request.step in scenario.effects else request.argument
        effect = provider.undo(scenario.provider, saga.effect(name), argument, request.generation)
        saga = saga.with_effect(name, effect)
    return with_saga(world, request.saga, saga), 0


def begun(scenario: Scenario, world: World, d: Delivery, *, counted: bool = True) -> World:
    """A body begins. `d` holds the state that its delivery was begun with."""
    brain, saga = scenario.brains[d.saga], world.sagas[d.saga]
    state, rule = brain.states[d.state], ""
    if state.paused:
        rule = "work of a saga began while it was paused"
    if d.direction == "do":
        effect = saga.effect(name := named(d.step, brain.generation(d.state, d.step)))
        over = state.deadline is not None and d.now >= state.deadline and brain.plan.may_turn_back(d.step)
        planned = brain.plan.by_name[d.step]
        in_doubt = effect.bodies or d.deliveries > 1
        if over and (not in_doubt or (may_leave_unknown(planned) and not planned.pivot)):
            rule = "a body began after the deadline, although the saga could turn back"
        if effect.retired and held(world, d):
            rule = "a step that is redone asks under the key it had before"
        if counted:
            saga = saga.with_effect(name, effect.but(bodies=effect.bodies + 1))
    return with_saga(world, d.saga, saga).but(broken=world.broken or rule)


class Working:
    """One worker with a delivery to work on."""

    def __init__(self, scenario: Scenario, world: World, who: int) -> None:
        self.scenario, self.store, self.world, self.who = scenario, scenario.store, world, who
        self.d, self.waiting = world.workers[who][0], world.workers[who][1:]
        self.brain = scenario.brains[self.d.saga]
        self.name, self.me = scenario.name_of(self.d), f"worker {who + 1}"

    def now(self, world: World, d: Delivery | None) -> World:
        """The world with this worker's delivery changed, or done with."""
        return with_worker(world, self.who, (d, *self.waiting) if d is not None else self.waiting)

    def answer(self, world: World, *call: str | int | float) -> World:
        heard = world.clock if self.store.timed else self.d.now
        return self.now(world, self.d.but(phase=ANSWER, call=call, had=(), now=heard))

    def success(self, answer: int) -> Call:
        """What a body returns; the last step of a run that is not the last one asks for another."""
        last = self.d.step == self.brain.plan.steps[-1].name and self.d.direction == "do"
        more = self.scenario.runs and last and self.d.saga + 1 < len(self.scenario.brains)
        return ("succeeded", "body", answer, "next") if more else ("succeeded", "body", answer)

    @property
    def locks(self) -> bool:
        """Whether its body begins only with a semantic lock."""
        return self.d.direction == "do" and self.brain.plan.by_name[self.d.step].has_lock

    @property
    def redone(self) -> int:
        """The generation of the step's own key."""
        return self.brain.generation(self.d.state, self.d.step)

    # --- external work ---

    def _act(self) -> Iterator[Takes]:
        if not self._all_landed():
            return
        if self.d.call[0] == "ask":
            yield from self._ask()
            return
        if self.d.call[0] in ("wait", "choose", "beget"):
            yield from self._before_body()
            return
        if self.locks:
            says = f"{self.me} finds that another saga holds what {self.name} is to lock"
            yield says, self.answer(self.world, "blocked", self.scenario.waits), ""
        world = begun(self.scenario, self.world, self.d)
        yield f"{self.me} runs {self.name}: its request is on the way", self.now(world, self.d.but(phase=WAITING)), ""

    def _before_body(self) -> Iterator[Takes]:
        """A wait that the saga has come to, or a condition that nobody has looked at."""
        if self.d.call[0] == "beget":
            yield f"{self.me} comes to {self.d.step}, which starts a child", self.answer(self.world, "begot"), ""
        elif self.d.call[0] == "wait":
            until = self.scenario.waits  # without end, or a time that comes
            until = until if until == math.inf else min(self.world.clock + until, self.scenario.latest)
            yield f"{self.me} comes to the wait {self.d.step}", self.answer(self.world, "waits", until), ""
        else:
            says = f"{self.me} looks at the condition of {self.d.step}: it is"
            yield f"{says} true", self.answer(self.world, "chosen"), ""
            yield f"{says} false", self.answer(self.world, "skipped"), ""
        yield (
            f"{self.me} cannot tell what {self.d.step} is to do: it raises",
            self.answer(self.world, "unbegun"),
            "raise",
        )

    def _all_landed(self) -> bool:
        """Whether no request of this step is on its way that, as this scenario has it, is there by now."""
        late = self.scenario.late
        if late is Late.EVER or (late is Late.SETTLING and self.d.direction != "settle"):
            return True
        step = (self.d.saga, self.d.step, "do")
        if any((request.saga, request.step, request.direction) == step for request in self.world.flight):
            return False
        others = (holds[0] for who, holds in enumerate(self.world.workers) if who != self.who and holds)
        sends = (WAITING, TOLD) if self.d.step in self.scenario.effects else (BEGUN, READY, WAITING)  # else: the guard
        about_to = ((d.saga, d.step, d.direction) == step and d.phase in sends for d in others)
        return held(self.world, self.d) is None or not any(about_to)  # else: it is itself the late one

    def _ask(self) -> Iterator[Takes]:
        saga = self.world.sagas[self.d.saga]
        effects = [saga.effect(name) for name in self.scenario.effects_of(self.d.step, self.redone)]
        who = f"{self.me} asks `resolve` about {self.name}"
        yield f"{who}: it cannot say", self.answer(self.world, "undecided"), "undecided"
        found = provider.ask_undone(effects[0]) if self.d.direction == "undo" else provider.ask_all(effects)
        if found is None:
            yield f"{who}: some of it happened", self.answer(self.world, "undecided"), ""
        elif found == NOTHING:
            call = self.brain.assess(self.d.state, self.d, not_done=True)
            yield f"{who}: it did not happen", self._after_asking(call), ""
        elif self.d.direction == "settle":
            call = self.brain.assess(self.d.state, self.d, found=found)
            yield f"{who}: it happened", self._after_asking(call), ""
        else:
            yield f"{who}: it happened", self.answer(self.world, "succeeded", "resolve", *self.success(found)[2:]), ""

    def _after_asking(self, call: Call) -> World:
        return self.now(self.world, self.d.but(phase=READY if call[0] == "run" else ANSWER, call=call))

    def request(self) -> Request:
        """What the body sends to the provider."""
        argument, generation = int(self.d.call[1]), int(self.d.call[2])
        if argument == provider.UNKNOWN and self.d.late is not None:
            argument = self.d.late
        if argument == RESULT:
            argument = self.world.sagas[self.d.saga].result(self.d.step)
        if not self.scenario.rules.settling_has_its_own_key:
            generation = 0
        if self.d.direction == "do":
            generation = 0
        return Request(self.d.saga, self.d.step, self.d.direction, argument, generation, redone=self.redone)

    def _wait(self) -> Iterator[Takes]:
        if self.d.step == self.scenario.deadly:
            return
        request = self.request()
        world, answer = land(self.scenario, self.world, request)
        if answer == CLOSED:
            yield (
                f"{self.me}'s request lands: the provider lets no request under this key through",
                self.answer(world, "failed"),
                "",
            )
        else:
            yield f"{self.me}'s request lands, and is answered", self.answer(world, *self.success(answer)), ""
            if self.d.direction == "do":
                says = f"{self.me}'s request lands, and its answer cannot be stored"
                yield says, self.answer(world, "unstorable"), "unstorable"
        lost = self.world.but(flight=(*self.world.flight, request))
        yield (
            f"{self.me}'s body raises a timeout; its request is still on the way",
            self.answer(lost, "failed"),
            "timeout",
        )
        known = (
            self.scenario.provider.keys and self.world.sagas[self.d.saga].effect(named(self.d.step, self.redone)).stands
        )
        if not (self.d.direction == "do" and known):
            yield (
                f"{self.me}'s request is refused: it did nothing",
                self.answer(self.world, "refused", False),
                "refusal",
            )

    # --- local work: lock the row, read the saga, run the body, record and commit ---

    def _local(self) -> Iterator[Takes]:
        state = self.store.load(self.world, self.d)
        if state is None:
            yield f"{self.me} finds that {self.name} is not its own any more", self.now(self.world, None), ""
            return
        d = self.d.but(phase=LOCKED, state=state, now=self.world.clock if self.store.timed else self.d.now)
        call = self.brain.assess(state, d)
        if call[0] == "choose":
            says = f"{self.me} locks {self.name} and looks at its condition: it is"
            yield f"{says} true", self.now(self.world, d.but(call=("chosen",))), ""
            yield f"{says} false", self.now(self.world, d.but(call=("skipped",))), ""
            return
        if call[0] != "run":
            yield f"{self.me} locks {self.name}: {call[0]}", self.now(self.world, d.but(call=call)), ""
            return
        if self.locks:
            says = f"{self.me} finds that another saga holds what {self.name} is to lock"
            yield says, self.now(self.world, d.but(call=("blocked", self.scenario.waits))), ""
        says = f"{self.me} locks {self.name} and runs its body in the transaction"
        world = begun(self.scenario, self.world, self.d, counted=False)
        yield f"{says}", self.now(world, d.but(call=self.success(0))), ""
        yield f"{says}: it raises", self.now(self.world, d.but(call=("failed",))), "raise"
        yield f"{says}: it refuses", self.now(self.world, d.but(call=("refused", False))), "refusal"
