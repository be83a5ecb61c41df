"""What a worker may do with the delivery it works on until an event has come of it: the steps of `sagas.body`."""

from __future__ import annotations

from collections.abc import Iterator

from tests.modelcheck import provider
from tests.modelcheck.brain import RESULT
from tests.modelcheck.provider import CLOSED, NOTHING
from tests.modelcheck.scenario import Late, Scenario
from tests.modelcheck.world import (
    ANSWER,
    BEGUN,
    LOCKED,
    READY,
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
    effect = saga.effect(request.step)
    if request.direction == "do":
        effect, answer = provider.do(scenario.provider, effect)
    else:
        effect = provider.undo(scenario.provider, effect, request.argument, request.generation)
        answer = 0
    return with_saga(world, request.saga, saga.with_effect(request.step, effect)), answer


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

    def answer(self, world: World, *call: str | int) -> World:
        return self.now(world, self.d.but(phase=ANSWER, call=call))

    # --- external work ---

    def _act(self) -> Iterator[Takes]:
        if not self._all_landed():
            return
        if self.d.call[0] == "ask":
            yield from self._ask()
            return
        world, saga = self.world, self.world.sagas[self.d.saga]
        if self.d.direction == "do":
            effect = saga.effect(self.d.step)
            saga = saga.with_effect(self.d.step, effect.but(bodies=effect.bodies + 1))
            world = with_saga(world, self.d.saga, saga)
        yield f"{self.me} runs {self.name}: its request is on the way", self.now(world, self.d.but(phase=WAITING)), ""

    def _all_landed(self) -> bool:
        """Whether no request of this step is on its way that, as this scenario has it, is there by now."""
        late = self.scenario.late
        if late is Late.EVER or (late is Late.SETTLING and self.d.direction != "settle"):
            return True
        step = (self.d.saga, self.d.step, "do")
        if any((request.saga, request.step, request.direction) == step for request in self.world.flight):
            return False
        others = (holds[0] for who, holds in enumerate(self.world.workers) if who != self.who and holds)
        about_to = ((d.saga, d.step, d.direction) == step and d.phase in (BEGUN, READY, WAITING) for d in others)
        return held(self.world, self.d) is None or not any(about_to)  # else: it is itself the late one

    def _ask(self) -> Iterator[Takes]:
        effect = self.world.sagas[self.d.saga].effect(self.d.step)
        who = f"{self.me} asks `resolve` about {self.name}"
        yield f"{who}: it cannot say", self.answer(self.world, "undecided"), "undecided"
        found = provider.ask_undone(effect) if self.d.direction == "undo" else provider.ask(effect)
        if found == NOTHING:
            call = self.brain.assess(self.d.state, self.d, not_done=True)
            yield f"{who}: it did not happen", self._after_asking(call), ""
        elif self.d.direction == "settle":
            call = self.brain.assess(self.d.state, self.d, found=found)
            yield f"{who}: it happened", self._after_asking(call), ""
        else:
            yield f"{who}: it happened", self.answer(self.world, "succeeded", "resolve", found), ""

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
        return Request(self.d.saga, self.d.step, self.d.direction, argument, generation)

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
            yield f"{self.me}'s request lands, and is answered", self.answer(world, "succeeded", "body", answer), ""
        lost = self.world.but(flight=(*self.world.flight, request))
        yield (
            f"{self.me}'s body raises a timeout; its request is still on the way",
            self.answer(lost, "failed"),
            "timeout",
        )
        known = self.scenario.provider.keys and self.world.sagas[self.d.saga].effect(self.d.step).stands
        if not (self.d.direction == "do" and known):
            yield f"{self.me}'s request is refused: it did nothing", self.answer(self.world, "refused"), "refusal"

    # --- local work: lock the row, read the saga, run the body, record and commit ---

    def _local(self) -> Iterator[Takes]:
        state = self.store.load(self.world, self.d)
        if state is None:
            yield f"{self.me} finds that {self.name} is not its own any more", self.now(self.world, None), ""
            return
        d = self.d.but(phase=LOCKED, state=state)
        call = self.brain.assess(state, d)
        if call[0] != "run":
            yield f"{self.me} locks {self.name}: {call[0]}", self.now(self.world, d.but(call=call)), ""
            return
        says = f"{self.me} locks {self.name} and runs its body in the transaction"
        yield f"{says}", self.now(self.world, d.but(call=("succeeded", "body", 0))), ""
        yield f"{says}: it raises", self.now(self.world, d.but(call=("failed",))), "raise"
        yield f"{says}: it refuses", self.now(self.world, d.but(call=("refused",))), "refusal"
