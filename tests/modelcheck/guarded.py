"""Steps with several guarded effects: what `sagas.guard` does, with its decision and its keys, and with its statements
as pure functions on the world.

Between `started`, the request, `done` and the next effect everybody else may act.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sagas import guarding
from tests.modelcheck.bodies import Takes, Working, begun, land
from tests.modelcheck.brain import named
from tests.modelcheck.provider import CLOSED, together
from tests.modelcheck.world import ANSWER, READY, TOLD, WAITING, Line, Request, World, with_saga

MISTAKEN: Final = "an effect is asked for, or answered, under a key that stands for another request"


class Guarded(Working):
    """A worker whose step may guard its effects."""

    @property
    def names(self) -> tuple[str, ...]:
        """The guarded effects of what is being done."""
        return self.scenario.effects.get(self.d.step, ()) if self.d.direction == "do" else ()

    @property
    def label(self) -> str:
        return f"{self.name} effect {self.names[len(self.d.had)]}"

    def _act(self) -> Iterator[Takes]:
        if not self.names or self.d.call[0] != "run":
            yield from super()._act()
        elif self._all_landed():
            yield from self._begin()
            if self.d.had:
                yield f"{self.me}'s body raises before {self.label}", self.answer(self.world, "failed"), "raise between"

    def _key(self) -> str:
        return guarding.effect_key(f"saga:{self.d.step}:do:{self.redone}", self.names[len(self.d.had)])

    def _asks(self) -> int:
        return self.world.release if not self.d.had else 0

    def _begin(self) -> Iterator[Takes]:
        """guard_begin.sql and what follows from it."""
        rules, key, saga = self.scenario.rules, self._key(), self.world.sagas[self.d.saga]
        if not self.d.had:
            saga = begun(self.scenario, self.world, self.d).sagas[self.d.saga]
        line = saga.line(key)
        closed = saga.remembered(named(self.d.step, self.redone)).closed and rules.guard_looks_for_closed
        before = (line is not None, None if line is None else str(line.asked), None if line is None else line.response)
        verdict = guarding.judge(guarding.Seen(closed, not closed and line is None, *before), str(self._asks()))
        if line is None and not closed and rules.guard_writes_started:
            saga = saga.with_line(key, Line(self._asks()))
        world = with_saga(self.world, self.d.saga, saga)
        if isinstance(verdict, guarding.Closed):
            yield f"{self.me} asks the guard about {self.label}: closed; it stops", self.now(world, None), ""
        elif isinstance(verdict, guarding.Mismatch):
            says = f"{self.me} asks the guard about {self.label}: it was tried with another request; the body fails"
            yield says, self.answer(world, "failed"), ""
        else:
            if line is not None and line.asked != self._asks():
                world = world.but(broken=MISTAKEN)
            yield from self._may(world, verdict)

    def _may(self, world: World, verdict: guarding.Verdict) -> Iterator[Takes]:
        if isinstance(verdict, guarding.Answer):
            assert isinstance(verdict.response, int)
            yield f"{self.me} asks the guard about {self.label}: it was had", self._had(world, verdict.response), ""
        else:
            says = f"{self.me} asks the guard about {self.label}, and its request is on the way"
            yield says, self.now(world, self.d.but(phase=WAITING)), ""

    def _had(self, world: World, answer: int) -> World:
        had = (*self.d.had, answer)
        if len(had) == len(self.names):
            done = self.d.but(had=())
            return self.now(world, done.but(phase=ANSWER, call=self.success(together(had))))
        return self.now(world, self.d.but(phase=READY, had=had))

    def request(self) -> Request:
        sent = super().request()
        return sent.but(effect=f"{self.d.step}/{self.names[len(self.d.had)]}") if self.names else sent

    def _wait(self) -> Iterator[Takes]:
        if not self.names:
            yield from super()._wait()
            return
        request, me = self.request(), f"{self.me}'s request for {self.label}"
        world, answer = land(self.scenario, self.world, request)
        if answer == CLOSED:
            yield f"{me} lands: the provider lets nothing under this key through", self.answer(world, "failed"), ""
        else:
            told = self.d.but(phase=TOLD, had=(*self.d.had, answer))
            yield f"{me} lands, and is answered", self.now(world, told), ""
            yield f"{me} lands, and its answer cannot be stored", self.answer(world, "unstorable"), "unstorable"
        lost = self.world.but(flight=(*self.world.flight, request))
        yield f"{me} times out, and is still on the way; the body fails", self.answer(lost, "failed"), "timeout"
        knows = self.scenario.rules.refused_knows_of_effects
        careless = self.answer(lost, "refused", knows)
        yield f"{me} times out, and is still on the way; the body goes on, and refuses", careless, "timeout"
        saga = self.world.sagas[self.d.saga]
        if not (self.scenario.provider.keys and saga.effect(named(request.effect, request.redone)).stands):
            refused = self.answer(self.world, "refused", knows and bool(self.d.had))
            yield f"{me} is refused: it did nothing; the body refuses", refused, "refusal"

    def _keep(self) -> Iterator[Takes]:
        """guard_end.sql: the first answer stays; a saga that has turned back is told."""
        *before, answer = self.d.had
        kept = self.world
        d = self.d.but(had=tuple(before))
        key = guarding.effect_key(f"saga:{d.step}:do:{self.redone}", self.names[len(before)])
        saga = kept.sagas[d.saga]
        line, rules = saga.line(key), self.scenario.rules
        if line is not None and rules.guard_writes_done:
            response = answer if line.response is None else line.response
            kept = with_saga(kept, d.saga, saga.with_line(key, line.but(response=response)))
            if saga.remembered(named(d.step, self.redone)).closed and rules.guard_tells_late_answers:
                kept = self.store.tell(kept, d)
        name = f"the answer of {self.name} effect {self.names[len(before)]}"
        self.d = d
        yield f"{self.me} keeps {name}", self._had(kept, answer), ""
        says = f"{self.me} cannot keep {name}: its connection broke"
        failed = self.answer(self.world, "failed")
        yield f"{says}; the body fails", failed, "lost acknowledgement"
        yield f"{says} after that; the body fails", self.answer(kept, "failed"), "lost acknowledgement"
