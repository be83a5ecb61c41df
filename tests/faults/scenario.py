"""Which kills there are, and what must be true before and after each. Nothing here runs anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sagas import Saga
from sagas.points import Point
from tests.faults.app.sagas import AskedOrder, KeyedOrder, Ordered
from tests.faults.sight import Line, Row, View

FORWARD = ("reserve:do", "charge:do", "ship:do")
BACK = (*FORWARD, "charge:undo", "reserve:undo")  # shipping is refused
QUEUES = {
    "reserve:do": "stock", "charge:do": "payments", "ship:do": "shipping",
    "charge:undo": "payments-back", "reserve:undo": "stock-back",
}  # fmt: skip
LOCAL = ("reserve:do", "reserve:undo")
BEFORE_EFFECT, AFTER_EFFECT = "bank.before_effect", "bank.after_effect"  # held there by the bank
SENT = (BEFORE_EFFECT, AFTER_EFFECT, Point.AFTER_BODY, Point.BEFORE_RECORD)  # the bank got the request
EVERYWHERE = (
    Point.AFTER_BEGIN, Point.BEFORE_BODY, BEFORE_EFFECT, AFTER_EFFECT, Point.AFTER_BODY, Point.BEFORE_RECORD,
    Point.AFTER_RECORD, Point.BETWEEN_STEPS,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The worker is killed at a place of one piece of work."""

    saga: type[Saga[Ordered]]
    back: bool  # shipping is refused
    work: str
    place: str  # a Point, or where the bank holds the request

    def __str__(self) -> str:
        return f"{self.saga.__name__}-{'back' if self.back else 'forward'}-{self.work}-{self.place}"

    @property
    def chain(self) -> tuple[str, ...]:
        """The work of this saga in order."""
        return BACK if self.back else FORWARD

    @property
    def asked(self) -> bool:
        """Whether the bank ignores keys and is asked instead."""
        return self.saga is AskedOrder

    @property
    def held(self) -> bool:
        """Whether the worker waits for the bank when it dies."""
        return self.place in (BEFORE_EFFECT, AFTER_EFFECT)

    @property
    def recorded(self) -> int:
        """Pieces of work that are in the log when the worker dies."""
        return self.chain.index(self.work) + (self.place is Point.AFTER_RECORD)

    @property
    def interrupted(self) -> str | None:
        """The work that is under way for the database when the worker dies; None: the saga has ended."""
        return self.chain[self.recorded] if self.recorded < len(self.chain) else None

    @property
    def begun(self) -> bool:
        """Whether the database knows that it was begun. The embedded worker's begin commits after the point."""
        return self.place is not Point.AFTER_BEGIN

    @property
    def settled_by_asking(self) -> bool:
        """Whether the next worker learns the outcome from the bank instead of sending the request again."""
        return self.asked and self.place in SENT and self.interrupted in ("charge:do", "ship:do")

    def at_death(self) -> View:
        """What the database holds when the worker stands at the point, and after it died."""
        lines, row = [Line(kind="started")], []
        for work in self.chain[: self.recorded]:
            lines += self._lines(work, 1)
        if self.interrupted is None:
            lines.append(self._last_line())
        else:
            first = self.recorded == 0
            row.append(
                Row(
                    work=self.interrupted,
                    holder="worker" if self.begun else "",
                    token=self.recorded + (self.begun or not first),
                    deliveries=int(self.begun),
                )
            )
        return View(
            status=self._status_after(self.recorded), outbox=row, log=lines, dedupe=self._dedupe(self.recorded),
            movements=self._movements(self.recorded), reservations=self._reservations(self.recorded),
        )  # fmt: skip

    def at_end(self) -> View:
        """What it holds when other workers have finished the saga."""
        everything = len(self.chain)
        lines = [Line(kind="started")]
        for work in self.chain:
            lost = work == self.interrupted and self.begun
            if lost and self.settled_by_asking:
                lines += self._lines(work, 1, source="resolve")
            else:
                lines += self._lines(work, 2 if lost else 1)
        return View(
            status=self._status_after(everything), outbox=[], log=[*lines, self._last_line()],
            dedupe=self._dedupe(everything), movements=self._movements(everything),
            reservations=self._reservations(everything),
        )  # fmt: skip

    def seen_by_bank(self) -> dict[str, int]:
        """How often the bank is asked for each effect, all in all."""
        seen = {work: 1 for work in self.chain if work not in LOCAL}
        if self.interrupted in seen and self.place in SENT and not self.settled_by_asking:
            seen[self.interrupted] = 2
        return seen

    def money(self) -> dict[str, str]:
        """What the bank's ledger says in the end."""
        return {"order": "0.00"} if self.back else {"order": "10.00", "parcel": "5.00"}

    def _lines(self, work: str, attempt: int, source: str = "body") -> list[Line]:
        step, _, direction = work.partition(":")
        if direction == "undo":
            return [Line(kind="undo_done", step=step, attempt=attempt, source=source)]
        if self.back and step == "ship":
            return [Line(kind="step_not_done", step=step, attempt=attempt), Line(kind="compensating", step=step)]
        return [Line(kind="step_done", step=step, attempt=attempt, source=source)]

    def _last_line(self) -> Line:
        return Line(kind="compensated" if self.back else "completed")

    def _status_after(self, recorded: int) -> str:
        if recorded == len(self.chain):
            return "compensated" if self.back else "completed"
        return "compensating" if recorded >= len(FORWARD) else "running"

    def _dedupe(self, recorded: int) -> dict[str, str]:
        """The effect of a step is closed when its compensation is called for."""
        return {"charge:do": "closed"} if self.back and recorded >= len(FORWARD) else {}

    def _movements(self, recorded: int) -> list[str]:
        done = self.chain[:recorded]
        return [name for work, name in (("reserve:do", "reserve"), ("reserve:undo", "release")) if work in done]

    def _reservations(self, recorded: int) -> int:
        return int(self._movements(recorded) == ["reserve"])


def scenarios() -> Iterator[Scenario]:
    """Every place of every piece of work, going forward, and compensating."""
    for saga in (KeyedOrder, AskedOrder):
        for back in (False, True):
            for work in BACK[len(FORWARD) :] if back else FORWARD:
                for place in EVERYWHERE:
                    if _exists(saga, work, place):
                        yield Scenario(saga=saga, back=back, work=work, place=place)


def _exists(saga: type[Saga[Ordered]], work: str, place: str) -> bool:
    if saga is AskedOrder and (work in LOCAL or place is Point.AFTER_BEGIN):
        return False  # nobody is asked
    if place in (BEFORE_EFFECT, AFTER_EFFECT):
        return work not in LOCAL
    return place is not Point.BETWEEN_STEPS or work != FORWARD[0]  # no step comes before the first
