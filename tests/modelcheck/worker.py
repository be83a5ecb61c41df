"""What a worker may do, and what may befall it.

Between any two of its steps everybody else may act; a worker that is frozen is one that does not act for a while.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.modelcheck.bodies import Takes
from tests.modelcheck.recording import Recording
from tests.modelcheck.scenario import Scenario
from tests.modelcheck.statements import requested
from tests.modelcheck.world import (
    AGAIN,
    ANSWER,
    BACK,
    BEGUN,
    LOCKED,
    READY,
    TOLD,
    UNSURE,
    WAITING,
    WRITTEN,
    Delivery,
    Row,
    World,
    held,
    row_of,
    with_row,
    with_worker,
)


def keeper(world: World, row: Row) -> Delivery | None:
    """The delivery of a living worker that keeps the lease of a held row, also if it does not know yet."""
    for holds in world.workers:
        for d in holds:
            if d.row == row.id and row.token == d.token + (d.phase == WRITTEN):
                return d
    return None


def locked(world: World, row: Row) -> bool:
    """Whether a local step has its row locked: from the lock until its transaction ends."""
    return any(
        d.row == row.id and d.token == row.token and d.phase == LOCKED for holds in world.workers for d in holds
    )  # fmt: skip


def worker_moves(scenario: Scenario, world: World, who: int) -> Iterator[Takes]:
    """Everything that a worker which holds something may do, and that may befall it."""
    return _Worker(scenario, world, who).moves()


class _Worker(Recording):
    """One worker with a delivery to work on."""

    def moves(self) -> Iterator[Takes]:
        if self.scenario.calm and self.d.phase in (WAITING, TOLD):
            yield from (each for each in self._moves() if each[2] in ("", "refusal"))
        else:
            yield from self._moves()

    def _moves(self) -> Iterator[Takes]:
        yield from self._crash()
        yield from self._lease()
        phase = self.d.phase
        if phase == BACK:
            yield from self._put_off()
        elif phase == BEGUN:
            yield from self._hand_back()
            yield from self._local() if not self.d.call else self._act()
        elif phase == READY:
            yield from self._act()
        elif phase == WAITING:
            yield from self._wait()
        elif phase == TOLD:
            yield from self._keep()
        elif phase == ANSWER:
            yield from self._record()
        elif phase == LOCKED:
            yield from self._commit()
        elif phase in (UNSURE, WRITTEN):
            yield from self._look()
        elif phase == AGAIN:
            yield from self._refresh()

    def _crash(self) -> Iterator[Takes]:
        world = with_worker(self.world, self.who, ())
        where = {
            BEGUN: "before it does anything", LOCKED: "and its transaction with it", READY: "before its body acts",
            WAITING: "with its request on the way", ANSWER: "before it records", AGAIN: "before it records",
            BACK: "before it gives it back", TOLD: "before the answer is kept",
            UNSURE: "before it knows what was recorded", WRITTEN: "before it knows what was recorded",
        }[self.d.phase]  # fmt: skip
        if self.d.phase == WAITING:
            world = world.but(flight=(*world.flight, self.request()))
        fatal = self.d.phase == WAITING and self.d.step == self.scenario.deadly
        yield f"{self.me} dies in {self.name}, {where}", world, "" if fatal else "crash"

    def _lease(self) -> Iterator[Takes]:
        kept = [
            (d, row) for d in self.world.workers[self.who] if (row := row_of(self.world, d.row)) and self._keeps(d, row)
        ]
        if any(not row.due for _, row in kept):
            world = self.world
            for _, row in kept:
                world = with_row(world, row.but(due=True))
            frozen = tuple(d.but(live=False) for d in world.workers[self.who])
            yield (
                f"{self.me} is frozen in {self.name}, and its lease ends",
                with_worker(world, self.who, frozen),
                "freeze",
            )
        row = held(self.world, self.d)
        if row is not None and row.due and not self.d.live:
            yield f"{self.me} wakes and renews its lease", self.store.heartbeat(self.world, self.who, self.d), ""

    def _keeps(self, d: Delivery, row: Row) -> bool:
        return row.holder == "worker" and keeper(self.world, row) is d

    def _put_off(self) -> Iterator[Takes]:
        world = self.now(self.store.put_off(self.world, self.d), None)
        yield f"{self.me} gives {self.name} back: it is not to be worked on now", world, ""

    def _hand_back(self) -> Iterator[Takes]:
        world = self.world
        for d in world.workers[self.who]:
            world = self.store.hand_back(world, d)
        after = with_worker(world, self.who, ())
        yield f"{self.me} hands {self.name} back", after, "hand back"
        if self.d.kind == "step" and requested(self.world, self.d.saga):
            yield f"{self.me} hands {self.name} back, since a request of its saga waits", after, ""
