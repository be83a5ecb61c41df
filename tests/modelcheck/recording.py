"""What a worker may do with an event: the steps of `sagas.recorder`, and of `sagas.local` from the record on."""

from __future__ import annotations

from collections.abc import Iterator

from sagas.machine import TERMINAL
from tests.modelcheck.bodies import Takes
from tests.modelcheck.guarded import Guarded
from tests.modelcheck.statements import FOLLOW
from tests.modelcheck.world import AGAIN, ANSWER, UNSURE, WRITTEN, World


class Recording(Guarded):
    """A worker that knows what came of its delivery."""

    def _record(self) -> Iterator[Takes]:
        written = self.store.record(self.world, self.d)
        if written is None:
            again = self.now(self.world, self.d.but(phase=AGAIN))
            yield self._says("cannot record, something has changed:"), again, ""
        else:
            yield self._says("records"), self._goes_on(written), ""
            live = self.store.continued(written, self.d) is not None or self.d.live
            sent = self.now(written, self.d.but(phase=WRITTEN, live=live))
            yield self._says("records, and the acknowledgement is lost:"), sent, "lost acknowledgement"
        lost = self.now(self.world, self.d.but(phase=UNSURE))
        yield self._says("loses its connection before anything is recorded:"), lost, "lost acknowledgement"
        if written is not None:
            on_its_way = lost.but(pending=(*lost.pending, self.d))
            yield self._says("loses its connection, the statement is under way:"), on_its_way, "lost acknowledgement"

    def _says(self, what: str) -> str:
        outcome = self.store.decide(self.d)
        entries = ", ".join(f"{kind} {step}".strip() for _, kind, step in outcome.entries)
        return f"{self.me} {what} {entries or 'nothing new'}"

    def _goes_on(self, written: World) -> World:
        following = self.store.continued(written, self.d)
        return self.now(written, following and following.but(live=True))

    def _look(self) -> Iterator[Takes]:
        mark = self.store.recorded(self.world, self.d)
        if mark is None or not self.scenario.rules.lost_ack_looks_in_log:
            yield f"{self.me} does not find it in the log", self.now(self.world, self.d.but(phase=AGAIN)), ""
            return
        after = self.now(self.world, self.store.continued(self.world, self.d, looked=True))
        if mark.row != self.d.row and self.d.kind == "step":  # two cancels may be taken for each other
            after = after.but(broken="an answer counts as recorded that is not")
        yield f"{self.me} finds it in the log", after, ""

    def _refresh(self) -> Iterator[Takes]:
        state = self.store.load(self.world, self.d)
        ended = state is not None and self.brain.status(state) in TERMINAL
        follows = self.d.kind in ("signal", *FOLLOW)
        if ended and follows and self.scenario.rules.request_of_an_ended_saga_goes_back:
            back = self.now(self.store.hand_back(self.world, self.d), None)
            yield f"{self.me} finds the saga ended, and gives {self.name} back: another run may go on", back, ""
        elif state is None:
            world = self.now(self.store.remember(self.world, self.d), None)
            yield f"{self.me} has lost {self.name}; an answer is kept in the dedupe table", world, ""
        else:
            fresh = self.d.but(phase=ANSWER, state=state)
            yield f"{self.me} reads the saga again", self.now(self.world, fresh), ""

    def _commit(self) -> Iterator[Takes]:
        written = self.store.record(self.world, self.d)
        if written is None:
            state = self.store.load(self.world, self.d)
            assert state is not None, "a locked row was taken"
            yield (
                f"{self.me} finds the saga changed and reads it again",
                self.now(self.world, self.d.but(state=state)),
                "",
            )
            return
        yield self._says("commits"), self._goes_on(written), ""
        yield self._says("commits, and the acknowledgement is lost"), self.now(written, None), "lost acknowledgement"
