"""A database that goes back in time: the tables are put back to what they were, sequences too."""
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

from django.db import connection, transaction

from sagas import NotDone, Retry, Saga, external_step, step
from tests.shop.models import Booking
from tests.shop.sagas import Ordered
from tests.shop.world import world

TABLES = ("sagas_saga", "sagas_log", "sagas_outbox", "sagas_dedupe", "sagas_signal", "sagas_message", "shop_booking")
SEQUENCES = ("sagas_outbox", "sagas_message")


class Backup:
    """The database as it is now, to go back to."""

    def __init__(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("create schema before")
            for table in TABLES:
                cursor.execute(f"create table before.{table} as table {table}")
            self.next = {}
            for table in SEQUENCES:
                cursor.execute(f"select last_value, is_called from {table}_id_seq")
                self.next[table] = cursor.fetchone()

    def restore(self) -> None:
        """Whatever was committed since has never happened."""
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("set local sagas.pruning = 'on'")
            for table in TABLES:
                cursor.execute(f"delete from {table}; insert into {table} overriding system value table before.{table}")
            for table, (last, called) in self.next.items():
                cursor.execute("select setval(%s, %s, %s)", [f"{table}_id_seq", last, called])


class Bought(Saga[Ordered], name="test.bought", version=1):
    """Two effects outside, which can be asked about, and a local step between them."""

    @external_step(retry=Retry(max_attempts=3, first=10))
    def charge(self) -> str:
        return act(self, "charge")

    @charge.resolve
    def find_charge(self) -> str | NotDone:
        return act(self, "find_charge")

    @charge.compensate
    def refund(self, charge: str) -> None:
        act(self, "refund")

    @step(compensate=None)
    def note(self) -> None:
        Booking.objects.create(saga=self.key, step="note")

    @external_step(pivot=True)
    def ship(self) -> str:
        return act(self, "ship")

    @ship.resolve
    def find_parcel(self) -> str | NotDone:
        return act(self, "find_parcel")


def act(run: Saga[Any], name: str) -> Any:
    return world.act(name, run)
