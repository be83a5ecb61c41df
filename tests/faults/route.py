"""Which places a saga comes by, and what is known of it wherever a process dies. Nothing here runs anything.

A route is walked by one life (a worker, or a relay and a worker) after the other. Each dies at a place and leaves the
next one what is in the database and at the bank. `walk` says which places a life comes by from there: the places of
the first life are the singles of a route, and those of each second life are its pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from sagas import Saga
from sagas.points import Point
from tests.faults.app.sagas import AskedOrder, KeyedOrder, Ordered
from tests.faults.scenario import BACK, FORWARD, LOCAL
from tests.faults.sight import Line

REFUSED = "ship:do"  # on the way back


class Bank(StrEnum):
    """Places at the bank, as points."""

    BEFORE_EFFECT = "bank.before_effect"
    AFTER_EFFECT = "bank.after_effect"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A point on the way of one piece of work."""

    point: Point | Bank
    work: str  # such as charge:do
    time: int = 1  # at which a life comes by it

    def __str__(self) -> str:
        again = f"#{self.time}" if self.time > 1 else ""
        return f"{self.work}-{self.point.rpartition('.')[2]}{again}"


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the database and the bank hold of a saga.

    Attributes:
        log: its log.
        recorded: pieces of work that are in it.
        lost: begun attempts that nobody recorded, by piece of work.
        landed: what happened at the bank.
        asked: how often the bank was asked for an effect, by piece of work.
    """

    log: tuple[Line, ...] = (Line(kind="started"),)
    recorded: int = 0
    lost: tuple[str, ...] = ()
    landed: frozenset[str] = frozenset()
    asked: tuple[str, ...] = ()

    @property
    def parked(self) -> bool:
        """Whether it waits for a person."""
        return self.log[-1].kind == "parked"

    @property
    def in_doubt(self) -> bool:
        """Whether the last attempt was refused, after one that may still land."""
        return self.log[-1].kind == "step_failed"

    def losing(self, work: str) -> Known:
        """The same, with one more begun attempt that nobody will record."""
        return replace(self, lost=(*self.lost, work))

    def asking(self, work: str) -> Known:
        """The same, with a request that has come to the bank."""
        return replace(self, asked=(*self.asked, work))

    def landing(self, work: str) -> Known:
        """The same, with an effect at the bank."""
        return replace(self, landed=self.landed | {work})


AnyPoint = Point | Bank
Step = tuple[Place, Known]


@dataclass(frozen=True, kw_only=True)
class Route:
    """How a saga is run.

    Attributes:
        saga: the definition.
        back: shipping is refused, and all is undone.
        relayed: relays publish each piece of work to a worker; else embedded workers go on from one to the next.
    """

    saga: type[Saga[Ordered]]
    back: bool
    relayed: bool

    def __str__(self) -> str:
        back, relayed = "back" if self.back else "forward", "relayed" if self.relayed else "embedded"
        return f"{self.saga.__name__}-{back}-{relayed}"

    @property
    def chain(self) -> tuple[str, ...]:
        """The work of this saga in order."""
        return BACK if self.back else FORWARD

    def walk(self, known: Known) -> Generator[Step, None, Known]:
        """The places that a life comes by, and what is known if it dies there; returns what is known in the end."""
        held, seen = False, Counter[Place]()
        while not self._over(known):
            work = self.chain[known.recorded]
            steps = self._work(work, known, held)
            while True:
                try:
                    point, dead = next(steps)
                except StopIteration as over:
                    known, held = over.value
                    break
                yield nth(Place(point=point, work=work), seen), dead
        return known

    def end(self, known: Known) -> Known:
        """What is known in the end when nobody dies any more."""
        walk = self.walk(known)
        while True:
            try:
                next(walk)
            except StopIteration as over:
                end: Known = over.value
                return end

    def _over(self, known: Known) -> bool:
        return known.recorded == len(self.chain) or known.parked

    def _work(self, work: str, known: Known, held: bool) -> Generator[tuple[AnyPoint, Known], None, tuple[Known, bool]]:
        """One piece of work; `held`: it was begun in the commit that recorded the one before."""
        yield from self._found(work, known, held)
        found_out = self._is_asked_about(work, known) and (work in known.landed or known.in_doubt)
        if not found_out:
            yield Point.BEFORE_BODY, known.losing(work)
            if work not in LOCAL:
                known = known.asking(work)
                yield Bank.BEFORE_EFFECT, known.losing(work)
            if not self._refused(work):
                if work not in LOCAL:
                    known = known.landing(work)
                    yield Bank.AFTER_EFFECT, known.losing(work)
                yield Point.AFTER_BODY, known.losing(work)
        yield Point.BEFORE_RECORD, known.losing(work)
        known = self._recorded(work, known, found_out)
        goes_on = not self.relayed and not self._over(known)
        dead = known.losing(self.chain[known.recorded]) if goes_on else known
        yield Point.AFTER_RECORD, dead
        return known, goes_on

    def _found(self, work: str, known: Known, held: bool) -> Iterator[tuple[AnyPoint, Known]]:
        if held:
            yield Point.BETWEEN_STEPS, known.losing(work)
        elif self.relayed:
            yield Point.AFTER_CLAIM, known
            yield Point.AFTER_PUBLISH, known
            yield Point.AFTER_BEGIN, known.losing(work)
        else:
            yield Point.AFTER_BEGIN, known  # in the transaction that finds it: not begun, if the worker dies

    def _is_asked_about(self, work: str, known: Known) -> bool:
        return self.saga is AskedOrder and work in ("charge:do", "ship:do") and work in known.lost

    def _refused(self, work: str) -> bool:
        return self.back and work == REFUSED

    def _recorded(self, work: str, known: Known, found_out: bool) -> Known:
        step, _, direction = work.partition(":")
        attempt = known.lost.count(work) + (not found_out or known.in_doubt)
        source = "resolve" if found_out else "body"
        if self._refused(work) and work in known.lost:
            return self._doubted(work, known, Line(kind="step_failed", step=step, attempt=attempt))
        if self._refused(work):
            lines = [Line(kind="step_not_done", step=step, attempt=attempt), Line(kind="compensating", step=step)]
        else:
            kind = "undo_done" if direction == "undo" else "step_done"
            lines = [Line(kind=kind, step=step, attempt=attempt, source=source)]
        if known.recorded + 1 == len(self.chain):
            lines.append(Line(kind="compensated" if self.back else "completed"))
        return replace(known, log=(*known.log, *lines), recorded=known.recorded + 1)

    def _doubted(self, work: str, known: Known, failed: Line) -> Known:
        """Refused, but the request of a dead worker may still land: the pivot is asked about, and else parked."""
        lines = [] if known.in_doubt else [failed]
        if known.in_doubt or not self._is_asked_about(work, known):
            lines.append(replace(failed, kind="parked"))
        return replace(known, log=(*known.log, *lines))


def nth(place: Place, seen: Counter[Place]) -> Place:
    """The place, with the time at which it is come by now."""
    seen[place] += 1
    return replace(place, time=seen[place])


def routes() -> list[Route]:
    """Every way to run the saga of an order."""
    return [
        Route(saga=saga, back=back, relayed=relayed)
        for saga in (KeyedOrder, AskedOrder)
        for back in (False, True)
        for relayed in (False, True)
    ]
