"""What came of it, and whether that is what was promised."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from example_project.demo.blows import Blow
from example_project.demo.plan import Plan, Trouble


@dataclass(frozen=True, kw_only=True, slots=True)
class Books:
    """What the shop believes."""

    paid: dict[str, Decimal]  # per confirmed order
    open_orders: int  # neither confirmed nor cancelled
    goods_add_up: bool  # shelf, reservations and shipments agree

    @property
    def total(self) -> Decimal:
        """What the bank must hold for the shop."""
        return sum(self.paid.values(), Decimal(0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of the summary."""

    label: str
    value: str
    kept: bool | None = None  # whether a promise was kept; None: there is none in this line


def summarize(
    *,
    plan: Plan,
    seconds: float,
    states: dict[str, int],
    parked: int,
    verified: str,
    faults: list[dict[str, Any]],
    ledger: dict[str, Any],
    books: Books,
    recovered: list[tuple[Blow, int]],
    shortened: list[str],
) -> list[Line]:
    """Compare what the saga tables, the bank and the shop say after the last saga.

    Args:
        plan: what was planned.
        seconds: from the first order to the end of the last saga.
        states: how many sagas are in each state.
        parked: how many wait for a person.
        verified: what `sagas verify` wrote.
        faults: the bank's script with its strikes.
        ledger: the bank's statement.
        books: the shop's books.
        recovered: the faults that hit, and how many of the sagas they hit have ended.
        shortened: settings that differ from the shop's.
    """
    orders = len(plan.orders)
    return [
        *_sagas(plan, states),
        Line(label="parked", value=str(parked), kept=parked == 0),
        Line(label="throughput", value=f"{orders / seconds:.1f} sagas/s ({seconds:.1f} s, faults included)"),
        *_money(ledger, books),
        Line(label="stock adds up", value=_yes(books.goods_add_up), kept=books.goods_add_up),
        Line(label="orders left open", value=str(books.open_orders), kept=books.open_orders == 0),
        _logs(orders, verified),
        *_troubles(plan, faults),
        *(_recovered(blow, ended) for blow, ended in recovered),
        *(Line(label="shortened", value=value) for value in shortened),
    ]


def _sagas(plan: Plan, states: dict[str, int]) -> list[Line]:
    wanted = {state: count for state, count in plan.ends.items() if count}
    total = sum(states.values())
    return [
        Line(label="sagas", value=f"{total}, ended as planned: {_yes(states == wanted)}", kept=states == wanted),
        *(Line(label=f"  {state}", value=str(count)) for state, count in states.items()),
    ]


def _money(ledger: dict[str, Any], books: Books) -> list[Line]:
    duplicates = ledger["duplicate_charges"]
    repeated = sum(1 for key in ledger["keys"].values() if key["seen"] > 1)
    refunds = sum(1 for entry in ledger["entries"] if entry["kind"] == "refund")
    bank_says = {order: Decimal(net) for order, net in ledger["orders"].items() if Decimal(net)}
    shop, bank = books.total, Decimal(ledger["balances"]["shop"])
    equal = bank_says == books.paid and shop == bank
    return [
        Line(label="duplicate charges", value=str(len(duplicates)), kept=not duplicates),
        Line(label="repeated keys the bank saw", value=str(repeated), kept=repeated > 0),
        Line(label="charges paid back", value=str(refunds), kept=refunds > 0),
        Line(
            label="shop and bank ledger equal to the cent",
            value=f"{_yes(equal)} (shop {shop:.2f}, bank {bank:.2f})",
            kept=equal,
        ),
    ]


def _logs(orders: int, verified: str) -> Line:
    said = verified.strip().rpartition("\n")[2]
    return Line(label="saga logs", value=said, kept=said == f"{orders} sagas verified, 0 problems")


def _troubles(plan: Plan, faults: list[dict[str, Any]]) -> list[Line]:
    struck = {order for fault in faults for order in fault["orders"]}
    spared = Counter(order.trouble for order in plan.orders if order.fault and str(order.order_id) not in struck)
    return [
        Line(label=f"met {trouble}", value=f"{count - spared[trouble]} of {count}", kept=not spared[trouble])
        for trouble in Trouble
        if (count := plan.troubles[trouble])
    ]


def _recovered(blow: Blow, ended: int) -> Line:
    hit = len(blow.sagas)
    return Line(
        label=f"recovered after {blow.name}",
        value=f"{ended} of {hit} deliveries ({blow.detail})",
        kept=ended == hit > 0,
    )


def render(lines: list[Line]) -> str:
    """The lines as text; a broken promise is marked."""
    width = max(len(line.label) for line in lines)
    marks = {True: "ok", False: "NO", None: ""}
    return "\n".join(f"{marks[line.kept]:>4}  {line.label:<{width}}  {line.value}" for line in lines)


def all_kept(lines: list[Line]) -> bool:
    """Whether no promise was broken."""
    return all(line.kept is not False for line in lines)


def _yes(answer: bool) -> str:
    return "yes" if answer else "NO"
