"""Lives of a saga that starts others: one child, and one for each of three letters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal

from tests.faults.app.family import LETTERS, FamilyOrder
from tests.faults.app.sagas import PRICE, Leg
from tests.faults.long_lives import LongLives


@dataclass(kw_only=True)
class FamilyLives(LongLives):
    """A saga with children.

    Args:
        back: its last step refuses, and all is undone.
    """

    back: bool = False

    def start(self) -> None:
        with self.connection.transaction():
            FamilyOrder.start(Leg(self.order, int(self.back)), key=self.order, using=self.connection)

    def send_due(self, *, rest: bool = False) -> None:
        """No signals here."""

    def check(self) -> None:
        """Every step of every saga happened once, or was undone once, in its place; nothing is left over."""
        assert self.findings() == []
        ends = Counter(self.fetch("select name, status from sagas_saga"))
        parent, child = ("compensated", "cancelled") if self.back else ("completed", "completed")
        assert ends == {
            ("faults.family_order", parent): 1, ("faults.stock", child): 1,
            ("faults.family_order.letter", child): LETTERS,
        }  # fmt: skip
        movements = [what.split()[0] for (what,) in self.fetch("select what from faults_movement order by id")]
        assert movements == ["open", "reserve", "release" if self.back else "close"]
        assert len(self.till.charges) == LETTERS
        assert len(self.till.refunded) == (LETTERS if self.back else 0)
        assert sum(self.till.balance().values()) == (Decimal(0) if self.back else LETTERS * PRICE)
        undone = self.fetch(
            "select l.step, l.at from sagas_log l join sagas_saga s on s.id = l.saga_id"
            " where s.key = %s and l.kind = 'undo_done' order by l.seq", self.order,
        )  # fmt: skip
        assert [step for step, _ in undone] == (["letter", "stock"] if self.back else [])
        if self.back:
            released = self.fetch("select min(at) from sagas_log where kind = 'undo_done' and step = 'reserve'")[0][0]
            assert undone[0][1] <= released, "the child was undone before the letters, which came after it"
