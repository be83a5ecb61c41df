"""Everything there is at one moment, from the database and from the bank, looked at past all proxies."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg

from sagas.verify import Finding, verify
from tests.chaos.scene import Scene

TERMINAL = ("completed", "compensated", "cancelled", "aborted")
BUSY = (
    "select (select count(*) from sagas_saga where finished_at is null and status <> 'parked')"
    " + (select count(*) from sagas_outbox) + (select count(*) from sagas_message where state = 'waiting')"
)
IDLE = (  # who left a transaction open, and holds back vacuum
    "select pid, left(query, 80) from pg_stat_activity where datname = current_database()"
    " and state like 'idle in transaction%' and state_change < clock_timestamp() - interval '5 seconds'"
)
SHOWN = 5  # sagas in the report of a failure
OPEN = (
    "select name || ' ' || coalesce(key, '') || ': ' || status from sagas_saga"
    " where finished_at is null and status <> 'parked' order by id limit 20"
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One saga."""

    id: UUID
    name: str
    key: str
    run: int
    status: str
    error: str


@dataclass(kw_only=True)
class Books:
    """What there is when all is quiet."""

    sagas: list[Row]
    lines: Counter[tuple[str, str]]  # order, what -> how often
    cents: dict[str, int]  # "paid" in our books, by part of an order
    accounts: dict[str, int]
    bank: dict[str, int]  # net cents, by part of an order
    duplicates: dict[str, int]
    seen: dict[str, int]  # how often the bank was asked, by idempotency key
    verified: list[Finding]
    outbox: list[tuple[Any, ...]]
    messages: dict[str, int]
    gaps: list[UUID]
    by_key: dict[str, list[Row]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_key = defaultdict(list)
        for row in self.sagas:
            self.by_key[row.key].append(row)


def busy(connection: psycopg.Connection[Any]) -> int:
    """How much is still to be done; 0: all is quiet."""
    row = connection.execute(BUSY).fetchone()
    return int(row[0]) if row else 0


def look(scene: Scene) -> Books:
    """Read everything."""
    with psycopg.connect(scene.url, autocommit=True) as connection:

        def fetch(query: str) -> list[Any]:
            return connection.execute(query.encode()).fetchall()

        ledger = scene.bank.ledger()
        sagas = fetch("select id, name, coalesce(key, ''), run, status, error from sagas_saga order by id")
        return Books(
            sagas=[Row(id=i, name=n, key=k, run=r, status=s, error=e) for i, n, k, r, s, e in sagas],
            lines=Counter({(o, w): many for o, w, many in fetch(
                'select "order", what, count(*) from chaos_line group by 1, 2')}),
            cents={o: int(many) for o, many in fetch(
                "select \"order\", sum(cents) from chaos_line where what = 'paid' group by 1")},
            accounts=dict(fetch("select name, balance from chaos_account")),
            bank={order: int(Decimal(amount) * 100) for order, amount in ledger["orders"].items()},
            duplicates=ledger["duplicate_charges"],
            seen={key: said["seen"] for key, said in ledger["keys"].items()},
            verified=[each for each in verify(connection) if isinstance(each, Finding)],
            outbox=fetch("select saga_id, kind, step, direction, holder, due_at - clock_timestamp() from sagas_outbox"),
            messages=dict(fetch("select state, count(*) from sagas_message group by 1")),
            gaps=[row[0] for row in fetch(
                "select saga_id from sagas_log group by 1 having count(*) <> max(seq) + 1 or min(seq) <> 0")],
        )  # fmt: skip


def story(connection: psycopg.Connection[Any], id: UUID) -> str:
    """One saga with its log, its rows, and what is remembered of its effects."""
    row = connection.execute("select name, key, run, status, seq, error from sagas_saga where id = %s", [id]).fetchone()
    log = connection.execute(
        "select seq, at, kind, step, attempt, token, left(data::text, 160) from sagas_log where saga_id = %s"
        " order by seq",
        [id],
    ).fetchall()
    rows = connection.execute(
        "select kind, step, direction, holder, token, deliveries, failures, due_at from sagas_outbox"
        " where saga_id = %s",
        [id],
    ).fetchall()
    known = connection.execute("select key, state from sagas_dedupe where saga_id = %s", [id]).fetchall()
    told = [f"saga {id}: {row}"]
    told += ["    " + "  ".join(str(part) for part in line if part is not None) for line in log]
    told += [f"    in the outbox: {' '.join(map(str, each))}" for each in rows]
    told += [f"    remembered: {' '.join(map(str, each))}" for each in known]
    return "\n".join(told)
