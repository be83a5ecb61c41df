"""What is ordered, and by which rule the end of each order is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sagas import Saga
from tests.chaos.app import going_on, sagas, together
from tests.chaos.app.money import POSTAGE, PRICE, WORD

BOTH = {"": PRICE, "/parcel": POSTAGE}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One saga class in the runs.

    Args:
        saga: the class.
        pays: cents for each part of an order when all is done; "": the order itself.
        share: how often it is ordered, beside the others.
        declines: parts that the bank may be told to refuse.
        cancels: whether it may be cancelled; then it has a rule for whatever is unknown then.
        reviewed: waits for `Review`.
        goods: it puts goods aside, which shows in our books.
        once: the step that may begin once only; None: it has none.
        parks: whether it parks, rightly, where the outcome of that step is unknown.
    """

    saga: type[Saga[Any]]
    pays: dict[str, int] = field(default_factory=lambda: BOTH)
    share: int = 4
    declines: tuple[str, ...] = ("", "/parcel")
    cancels: bool = True
    reviewed: bool = False
    goods: bool = False
    once: str | None = None
    parks: bool = False

    def due(self, number: int) -> dict[str, int]:
        """What is paid for an order of this number in the end."""
        if self.saga is not sagas.Choosy:
            return self.pays
        return BOTH if number % 2 and number % 10 != 5 else {"/parcel": POSTAGE}


ITEMS = {f"/{item}": WORD for item in range(together.ITEMS)}
RUNS = {f"/{number}": PRICE for number in range(going_on.RUNS)}
ONE = {"": PRICE}

KINDS = {
    kind.saga.__name__.lower(): kind
    for kind in (
        Kind(saga=sagas.Keyed, pays={**BOTH, "/word": WORD}, share=8, goods=True),
        Kind(saga=sagas.Asked, share=6, goods=True),
        Kind(saga=sagas.Blind, pays=ONE, declines=("",), once="charge"),
        Kind(saga=sagas.Doubt, pays=ONE, share=2, declines=("",), cancels=False, once="charge", parks=True),
        Kind(saga=sagas.Choosy, declines=("/parcel",)),
        Kind(saga=sagas.Awaited),
        Kind(saga=sagas.Effects, cancels=False),
        Kind(saga=going_on.Reviewed, share=6, reviewed=True),
        Kind(saga=going_on.Hurried, goods=True, reviewed=True),
        Kind(saga=going_on.Again, pays=RUNS, share=3, declines=(), cancels=False),
        Kind(saga=together.Beside, share=6, goods=True),
        Kind(saga=together.Family, pays={**BOTH, **ITEMS}, share=3, declines=("", "/parcel"), cancels=False),
        Kind(saga=together.Locked, pays=ONE, share=5, declines=("",)),
    )
}
