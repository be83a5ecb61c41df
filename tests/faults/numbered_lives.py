"""Lives that die at the place they come by at some number; and sagas of several orders, or several steps at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from sagas import Refused
from sagas.points import Point, listen
from tests.faults import lives
from tests.faults.app.sagas import BesideOrder, LockedOrder, Ordered, insurance, parcel
from tests.faults.route import Bank, Place
from tests.faults.till import Till, _work


@dataclass(kw_only=True)
class VoidingTill(Till):
    """One that is told of charges that may have happened, or not: what comes under such a key later is refused."""

    voided: set[str] = field(default_factory=set)  # keys of charges

    def charge(self, amount: Decimal, *, order: str, idempotency_key: str) -> str:
        if idempotency_key in self.voided:
            raise Refused("voided")
        return super().charge(amount, order=order, idempotency_key=idempotency_key)

    def void(self, charge_key: str, *, idempotency_key: str) -> None:
        self._arrives(idempotency_key)
        self.voided.add(charge_key)
        self.refunded.add(charge_key)
        self.reached(Bank.AFTER_EFFECT, _work(idempotency_key))


@dataclass(kw_only=True)
class NumberedLives(lives.Lives):
    """Sagas of some orders.

    Args:
        refuses: what the bank refuses, of each order: nothing, or its parcel or insurance.
    """

    till: Till = field(default_factory=VoidingTill)
    refuses: str = ""
    orders: list[str] = field(default_factory=list)
    _dies_at: int = 0

    def start(self) -> None:
        self.orders = self.orders or [self.order]
        self.till.keys = True
        self.till.refused = {f"{order}/{self.refuses}" for order in self.orders if self.refuses}
        for order in self.orders:
            with self.connection.transaction():
                self.route.saga.start(Ordered(order), key=order, using=self.connection)

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
        place = Place(point=point, work=detail)
        self.trace.append(place)
        self.at(place)
        self.look()
        if len(self.trace) == self._dies_at:
            self._left = self.dump()
            raise lives.Died

    def look(self) -> None:
        """What has to be true at every place."""

    def dump(self) -> list[Any]:
        return [*super().dump(), self.fetch("select * from sagas_lock order by 1, 2")]

    def empty(self) -> None:
        super().empty()
        self.connection.execute("delete from sagas_lock")

    def end(self) -> None:
        """Live until nothing is due, whatever was lost."""
        for _ in range(8):
            self.live()
            self.end_leases()
            if not self.fetch("select 1 from sagas_outbox"):
                return
        raise AssertionError(f"it does not end: {self.fetch('select * from sagas_outbox')}")

    def check(self) -> None:
        """Every order is done, or undone, as a whole; nothing is left over, and nothing happened twice."""
        assert self.findings() == []
        assert self.fetch("select 1 from sagas_lock") == []
        wanted = "compensated" if self.refuses else "completed"
        found = self.fetch("select key, status, error from sagas_saga order by key")
        assert [(key, status) for key, status, _ in found] == [(key, wanted) for key in sorted(self.orders)], found
        taken = [key for key, *_ in self.till.charges]
        assert len(taken) == len(set(taken)), "an effect happened twice"
        balance = {order: amount for order, amount in self.till.balance().items() if amount}
        assert balance == ({} if self.refuses else self.price())
        for order in self.orders:
            done = Counter(what for (what,) in self.fetch(MOVEMENTS, order))
            assert done == self.moved(done), done
        ends = self.fetch("select saga_id, kind, step from sagas_log where kind in ('step_done', 'undo_done')")
        assert set(Counter(ends).values()) <= {1}, "each once"

    def moved(self, done: Counter[str]) -> Counter[str]:
        """What local steps have to have done of an order."""
        return Counter(reserve=1, release=1) if self.refuses else Counter(reserve=1)

    def price(self) -> dict[str, Decimal]:
        """What all orders cost."""
        raise NotImplementedError


@dataclass(kw_only=True)
class LockLives(NumberedLives):
    """Two orders that want the same shelf and the same till."""

    def start(self) -> None:
        self.orders = [f"{self.order}-a", f"{self.order}-b"]
        self.till.reached = self._at_the_till
        super().start()

    def _at_the_till(self, point: Bank, work: str) -> None:
        if work == "charge:do":
            assert len(self.fetch(HOLDERS, "till")) == 1, "a body runs without its lock"
        self._reached(point, work)

    def look(self) -> None:
        """A saga that has done a step holds what that step took until its end, and then nothing."""
        for saga, ended, held, done in self.fetch(HOLDINGS):
            has, done = set(held or ()), set(done or ())
            assert not (ended and has), f"{has} is held by a saga that has ended"
            wanted = {SUBJECT[step] for step in done & SUBJECT.keys()}
            assert ended or wanted <= has, f"{saga} has done {done} and holds only {has}"

    def price(self) -> dict[str, Decimal]:
        return {order: Decimal(10) for order in self.orders} | {parcel(order): Decimal(5) for order in self.orders}


@dataclass(kw_only=True)
class BesideLives(NumberedLives):
    """An order whose steps are side by side."""

    def price(self) -> dict[str, Decimal]:
        (order,) = self.orders
        return {order: Decimal(10), insurance(order): Decimal(10), parcel(order): Decimal(5)}

    def moved(self, done: Counter[str]) -> Counter[str]:
        if self.refuses == "insurance" and not done:  # it had not begun when the other one failed
            return done
        return super().moved(done)


MOVEMENTS = """select what from faults_movement where "order" = %s"""
HOLDINGS = """
    select s.id, s.finished_at is not null,
        (select array_agg(subject) from sagas_lock l where l.saga_id = s.id and not l.waiting),
        (select array_agg(step) from sagas_log l where l.saga_id = s.id and l.kind = 'step_done')
    from sagas_saga s
"""  # of one moment
HOLDERS = "select saga_id from sagas_lock where subject = %s and not waiting"
SUBJECT = {"reserve": "shelf", "charge": "till"}
__all__ = ["BesideLives", "BesideOrder", "LockLives", "LockedOrder", "NumberedLives"]
