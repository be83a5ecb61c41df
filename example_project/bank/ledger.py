"""The bank's store: entries, remembered answers, tombstones.

Every public method is one SQLite transaction under one lock, so an effect and the answer remembered for its key are
there together or not at all. Two requests under one key have one effect whatever their order.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from example_project.bank.money import to_text

SCHEMA = Path(__file__).with_name("schema.sql")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the bank says over HTTP."""

    status: int
    body: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """How well the bank remembers while it handles one request."""

    key_ttl: float  # seconds an answer is remembered under its key; 0 ignores keys
    tombstones: bool = True


class Ledger:
    """Charges and refunds of one shop.

    Args:
        path: an SQLite file that survives restarts, or ":memory:".
    """

    def __init__(self, path: str = ":memory:") -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.executescript(SCHEMA.read_text(encoding="utf-8"))

    def close(self) -> None:
        """Close the store."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def sight(self, key: str, kind: str) -> None:
        """Count that a request with this key arrived, whatever becomes of it."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO sighting VALUES (?, ?, 1) ON CONFLICT (key) DO UPDATE SET times = times + 1", (key, kind)
            )

    def charge(self, *, key: str, order: str, cents: int, memory: Memory) -> Answer:
        """Take the money, or repeat the answer that this key got before.

        Returns:
            201 with the charge; 402 when this key was refused before; 410 when the key is void; 422 when the key
            came before with another request.
        """
        fingerprint = f"{order} {cents}"
        with self._transaction() as db:
            if known := _remembered(db, key, fingerprint, memory):
                return known
            if memory.tombstones and db.execute("SELECT 1 FROM tombstone WHERE key = ?", (key,)).fetchone():
                return Answer(status=410, body={"error": "this key is void: it was refunded before a charge arrived"})
            number = db.execute(
                "INSERT INTO entry (kind, order_ref, key, cents, at) VALUES ('charge', ?, ?, ?, ?)",
                (order, key, cents, time.time()),
            ).lastrowid
            answer = Answer(status=201, body={"id": f"ch_{number}", "order": order, "amount": to_text(cents)})
            _remember(db, key, fingerprint, answer)
            return answer

    def refuse(self, *, key: str, order: str, cents: int, memory: Memory) -> Answer:
        """Refuse a charge and remember the refusal; a key that got its answer before gets it again."""
        fingerprint = f"{order} {cents}"
        with self._transaction() as db:
            if known := _remembered(db, key, fingerprint, memory):
                return known
            answer = Answer(status=402, body={"error": "card declined"})
            _remember(db, key, fingerprint, answer)
            return answer

    def refund_charge(self, *, charge_id: str, key: str) -> Answer:
        """Pay one charge back, whole and once.

        Returns:
            201 with the refund, 200 when it was refunded before, 404 for an unknown charge.
        """
        with self._transaction() as db:
            charge = db.execute(
                "SELECT * FROM entry WHERE kind = 'charge' AND 'ch_' || id = ?", (charge_id,)
            ).fetchone()
            if charge is None:
                return Answer(status=404, body={"error": f"no charge {charge_id!r}"})
            _bury(db, charge["key"])
            number, is_new = _refund(db, charge, key)
            return Answer(status=201 if is_new else 200, body={"refunds": [f"re_{number}"], "void": True})

    def refund_key(self, *, charge_key: str, key: str) -> Answer:
        """Pay back whatever was charged under a key, and make the key void for what may still land.

        Returns:
            201 with the refunds made now or before; 200 when there was nothing to refund.
        """
        with self._transaction() as db:
            _bury(db, charge_key)
            charges = db.execute(
                "SELECT * FROM entry WHERE kind = 'charge' AND key = ? ORDER BY id", (charge_key,)
            ).fetchall()
            refunds = [f"re_{_refund(db, charge, key)[0]}" for charge in charges]
            return Answer(status=201 if refunds else 200, body={"refunds": refunds, "void": True})

    def find(self, key: str) -> dict[str, Any]:
        """What was charged under a key: ids, whether all of it is refunded, whether the key is void."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT c.id, r.id AS refund FROM entry c LEFT JOIN entry r ON r.refunds = c.id"
                " WHERE c.kind = 'charge' AND c.key = ? ORDER BY c.id",
                (key,),
            ).fetchall()
            void = db.execute("SELECT 1 FROM tombstone WHERE key = ?", (key,)).fetchone() is not None
        return {
            "ids": [f"ch_{row['id']}" for row in rows],
            "refunded": bool(rows) and all(row["refund"] for row in rows),
            "void": void,
        }

    def order_of_charge(self, charge_id: str) -> str | None:
        """The order that a charge was made for."""
        with self._transaction() as db:
            row = db.execute("SELECT order_ref FROM entry WHERE 'ch_' || id = ?", (charge_id,)).fetchone()
        return None if row is None else str(row["order_ref"])

    def snapshot(self) -> tuple[list[sqlite3.Row], list[sqlite3.Row], list[str]]:
        """All entries in order of landing, all sightings, all void keys; of one moment."""
        with self._transaction() as db:
            return (
                db.execute("SELECT * FROM entry ORDER BY id").fetchall(),
                db.execute("SELECT * FROM sighting ORDER BY key").fetchall(),
                [row["key"] for row in db.execute("SELECT key FROM tombstone ORDER BY key")],
            )


def _remembered(db: sqlite3.Connection, key: str, fingerprint: str, memory: Memory) -> Answer | None:
    """The answer this key got within the time that keys are honoured."""
    row = db.execute("SELECT * FROM answer WHERE key = ?", (key,)).fetchone()
    if row is None or time.time() - row["at"] >= memory.key_ttl:
        return None
    if row["fingerprint"] != fingerprint:
        return Answer(status=422, body={"error": f"key {key!r} came before with another order or amount"})
    return Answer(status=row["status"], body=json.loads(row["body"]))


def _remember(db: sqlite3.Connection, key: str, fingerprint: str, answer: Answer) -> None:
    db.execute(
        "INSERT OR REPLACE INTO answer VALUES (?, ?, ?, ?, ?)",
        (key, fingerprint, answer.status, json.dumps(answer.body), time.time()),
    )


def _bury(db: sqlite3.Connection, key: str) -> None:
    db.execute("INSERT OR IGNORE INTO tombstone VALUES (?, ?)", (key, time.time()))


def _refund(db: sqlite3.Connection, charge: sqlite3.Row, key: str) -> tuple[int, bool]:
    """Number of the charge's refund, and whether it was made now."""
    done = db.execute("SELECT id FROM entry WHERE refunds = ?", (charge["id"],)).fetchone()
    if done is not None:
        return int(done["id"]), False
    made = db.execute(
        "INSERT INTO entry (kind, order_ref, key, cents, refunds, at) VALUES ('refund', ?, ?, ?, ?, ?)",
        (charge["order_ref"], key, charge["cents"], charge["id"], time.time()),
    )
    assert made.lastrowid is not None
    return made.lastrowid, True
