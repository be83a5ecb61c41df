"""The rules by which a run is judged, each a line of words for whatever is not as it has to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from tests.chaos.app.going_on import RUNS, TICK
from tests.chaos.app.together import ACCOUNTS
from tests.chaos.books import TERMINAL, Books, Row
from tests.chaos.kinds import KINDS, Kind
from tests.chaos.plan import Wish


@dataclass(frozen=True)
class Wrong:
    """Something that must not be, and the saga concerned."""

    what: str
    saga: UUID | None = None

    def __str__(self) -> str:
        return self.what


def judge(books: Books, committed: Sequence[Wish], rolled_back: Sequence[Wish]) -> list[Wrong]:
    """Everything that is wrong."""
    found = [*_database(books), *_once(books), *_accounts(books), *_ticks(books)]
    for wish in committed:
        found += _order(books, wish, KINDS[wish.kind])
    for wish in rolled_back:
        if books.by_key.get(wish.order) or books.lines[wish.order, "ordered"] or wish.order in books.bank:
            found.append(Wrong(f"{wish.order}: its transaction was rolled back, and there is something of it"))
    orders = {wish.order for wish in committed}
    for part in books.bank.keys() | books.cents.keys():
        if part.partition("/")[0] not in orders:
            found.append(Wrong(f"{part}: money for what nobody ordered"))
    return found


def _database(books: Books) -> Iterator[Wrong]:
    for finding in books.verified:
        yield Wrong(f"sagas verify: {finding}", finding.saga_id)
    for id in books.gaps:
        yield Wrong(f"saga {id}: its log has gaps", id)
    for left in books.outbox:
        yield Wrong(f"left in the outbox: {left}", left[0])
    for state, many in books.messages.items():
        yield Wrong(f"{many} plain messages are {state}")
    for row in books.sagas:
        if row.status not in TERMINAL and not _rightly_parked(row):
            yield Wrong(f"{row.name} {row.key}: {row.status} in the end: {row.error}", row.id)


def _rightly_parked(row: Row) -> bool:
    """Only where its author said that a person has to look: an attempt without an answer, and nobody to ask."""
    kind = KINDS.get(row.name.removeprefix("chaos."))
    return row.status == "parked" and kind is not None and kind.parks and "unknown" in row.error


def _once(books: Books) -> Iterator[Wrong]:
    """No transaction of ours happened twice, and no charge at the bank."""
    for (order, what), many in books.lines.items():
        if what == "effect again":
            yield Wrong(f"{order}: an effect was called again after it had returned", _id_of(books, order))
        elif many > 1 and what != "had one":
            yield Wrong(f"{order}: {what!r} was written {many} times", _id_of(books, order))
    for row in books.sagas:
        kind = KINDS.get(row.name.removeprefix("chaos."))
        many = books.seen.get(f"{row.id}:{kind.once}:do:0", 0) if kind else 0
        if kind and kind.once and many > 1:
            yield Wrong(f"{row.name} {row.key}: {kind.once!r} has one attempt, and began {many} times", row.id)
    for part, many in books.duplicates.items():
        yield Wrong(f"{part}: charged {many} times", _id_of(books, part))


def _id_of(books: Books, part: str) -> UUID | None:
    rows = books.by_key.get(part.partition("/")[0])
    return rows[0].id if rows else None


def _order(books: Books, wish: Wish, kind: Kind) -> Iterator[Wrong]:
    """One order: it is there, and it has come to one of its ends, in both ledgers."""
    rows = [row for row in books.by_key.get(wish.order, ()) if row.name == kind.saga.saga_name]
    many = RUNS if wish.kind == "again" else 1
    if len(rows) != many or books.lines[wish.order, "ordered"] != 1:
        yield Wrong(f"{wish.order}: {len(rows)} sagas in place of {many}", rows[0].id if rows else None)
        return
    last = rows[-1]
    paid = kind.due(wish.number)
    at_bank = {part: books.bank.get(wish.order + part, 0) for part in kind.pays.keys() | paid.keys()}
    ours = {part: books.cents.get(wish.order + part, 0) for part in at_bank}
    parts = [part for part in at_bank if at_bank[part] != ours[part]]
    completed = last.status == "completed"
    expected = {part: paid.get(part, 0) if completed else 0 for part in at_bank}
    if last.status == "parked":
        if any(at_bank[part] not in (0, paid[part]) for part in paid) or any(ours.values()):
            yield Wrong(f"{wish.order}: parked, with {at_bank} at the bank and {ours} in our books", last.id)
    elif parts or at_bank != expected:
        yield Wrong(f"{wish.order}: {last.status}, {at_bank} at the bank, {ours} in our books", last.id)
    goods = books.lines[wish.order, "reserve"] - books.lines[wish.order, "release"]
    if kind.goods and last.status in TERMINAL and goods != int(completed):
        yield Wrong(f"{wish.order}: {last.status}, and {goods} times goods are put aside", last.id)
    if kind.reviewed and completed and not books.lines[wish.order, f"note {wish.order}"]:
        yield Wrong(f"{wish.order}: completed with another note than what was signalled", last.id)
    if completed and wish.decline is not None:
        yield Wrong(f"{wish.order}: completed, and {wish.decline or 'the order'} was to be declined", last.id)


def _accounts(books: Books) -> Iterator[Wrong]:
    """Read by one step, written by a later one; every addition is there if nobody came between."""
    name = KINDS["locked"].saga.saga_name
    done = Counter(
        f"account:{int(row.key.rpartition('-')[2]) % ACCOUNTS}"
        for row in books.sagas
        if row.name == name and row.status == "completed"
    )
    for account in done.keys() | books.accounts.keys():
        if done[account] != books.accounts.get(account, 0):
            yield Wrong(f"{account}: {done[account]} sagas added one, and it stands at {books.accounts.get(account)}")


def _ticks(books: Books) -> Iterator[Wrong]:
    """None is missing between the first and the last."""
    ticks = sorted(int(what.split()[1]) for order, what in books.lines if order == "ticks")
    step = int(TICK.total_seconds())
    if not ticks:
        yield Wrong("the schedule has started nothing")
    elif missing := sorted(set(range(ticks[0], ticks[-1] + 1, step)) - set(ticks)):
        yield Wrong(f"the schedule: {len(missing)} ticks are missing, the first is {missing[0]}")
