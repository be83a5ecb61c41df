"""Lives of a saga that waits, chooses and goes on as another run, and of those who send it signals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sagas.points import Point, listen
from tests.faults import lives
from tests.faults.app.sagas import Approval, Leg, LongOrder
from tests.faults.route import Bank, Place

NOTES = ("first", "second")  # one signal for each run


@dataclass(kw_only=True)
class LongLives(lives.Lives):
    """A saga of two runs.

    Args:
        sends_at: the place of a life at which each signal is sent, by its number in the trace; 0: before all.
        wiped_at: the place at which the broker loses what it has.
    """

    sends_at: Sequence[int] = (0, 0)
    wiped_at: int = 0
    _sent: int = 0
    _come_by: int = 0
    _dies_at: int = 0

    def start(self) -> None:
        with self.connection.transaction():
            LongOrder.start(Leg(self.order), key=self.order, using=self.connection)
        self.send_due()

    def send_due(self, *, rest: bool = False) -> None:
        """Send what is to be sent by now; each signal is sent twice under one name, as a webhook does."""
        while self._sent < len(NOTES) and (rest or self.sends_at[self._sent] <= self._come_by):
            note = NOTES[self._sent]
            self._sent += 1
            assert self.send(note), "the first of two that are alike counts"
            assert not self.send(note), "the second does not"

    def send(self, note: str, connection: Any = None) -> bool:
        """Send a signal in a transaction of its own, beside whatever a worker has open."""
        given = connection or self.connection
        with given.transaction():
            return LongOrder.approval.send(Approval(note), key=self.order, dedupe_id=note, using=given)

    def dies_at(self, number: int) -> bool:
        """A life that dies at the place it comes by at this number, from 1; whether it came so far."""
        self._dies_at, self.trace = number, []
        listen(self._reached)
        try:
            self._work_until_idle()
        except lives.Died:
            assert self.dump() == self._left, "a life wrote something after its death"
            self.end_leases()
            return True
        finally:
            listen(None)
            self._dies_at = 0
        return False

    def _reached(self, point: Point | Bank, detail: str) -> None:
        self._come_by += 1
        self.send_due()
        if self._come_by == self.wiped_at:
            self.broker.waiting.clear()
            self.connection.execute("update sagas_outbox set due_at = clock_timestamp() where holder like 'relay:%'")
        self.trace.append(Place(point=point, work=detail))
        if len(self.trace) == self._dies_at:
            self._left = self.dump()
            raise lives.Died

    def _end_backoffs(self) -> bool:
        """Backoffs end; a wait for a signal is not hurried."""
        changed = self.connection.execute(
            "update sagas_outbox set due_at = clock_timestamp() where holder is null"
            " and due_at > clock_timestamp() and due_at < clock_timestamp() + interval '1 hour'"
        )
        return changed.rowcount > 0

    def dump(self) -> list[Any]:
        return [*super().dump(), self.fetch("select * from sagas_signal order by 1, 2, 3, 4")]

    def empty(self) -> None:
        super().empty()
        self.connection.execute("delete from sagas_signal")

    def end(self) -> None:
        """Live until nothing is due, whatever was lost: leases and windows end, and what was not sent yet is sent."""
        for _ in range(8):
            self.live()
            self.end_leases()
            self.send_due(rest=True)
            if not self.fetch("select 1 from sagas_outbox"):
                return
        raise AssertionError(f"it does not end: {self.fetch('select * from sagas_outbox')}")

    def check(self) -> None:
        """Each run did each of its steps once, took its own signal, and nothing is left over."""
        assert self.findings() == []
        assert self.fetch("select run, status from sagas_saga order by run") == [(1, "completed"), (2, "completed")]
        movements = [what for (what,) in self.fetch("select what from faults_movement order by id")]
        assert movements == ["reserve", "again first", "reserve", "again second"]
        assert len(self.till.charges) == 1
        assert sum(self.till.balance().values()) == Decimal(10)
        lines = self.fetch(
            "select s.run, l.kind, l.step from sagas_log l join sagas_saga s on s.id = l.saga_id order by s.run, l.seq"
        )
        once = Counter(line for line in lines if line[1] in ENDS)
        assert set(once.values()) == {1}, once
        charges = {(1, "step_chosen", "charge"), (1, "step_done", "charge"), (2, "step_skipped", "charge")}
        assert {line for line in once if line[2] == "charge"} == charges
        assert sum(kind == "signalled" for _, kind, _ in lines) in (2, 3), "each once; one may have been carried over"


ENDS = ("started", "step_done", "step_skipped", "completed", "step_chosen", "waiting")
