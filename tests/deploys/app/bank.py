"""A bank and a carrier with books of their own, in a database that no failover of ours touches.

The bank honours idempotency keys. The carrier does not: asked twice it sends two parcels, but it can be asked what it
has sent.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator

BOOKS = """
create table movement (key text primary key, reference text not null,
    at timestamptz not null default clock_timestamp());
create table parcel (id bigint generated always as identity, key text not null,
    at timestamptz not null default clock_timestamp());
"""


@contextmanager
def books(url: str | None = None) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the books."""
    with psycopg.connect(url or os.environ["BANK_URL"], autocommit=True, connect_timeout=10) as connection:
        yield connection


def move(key: str) -> str:
    """Take money, or give it back; under the same key once."""
    with books() as connection:
        reference = f"m-{key}"
        connection.execute(
            "insert into movement (key, reference) values (%s, %s) on conflict do nothing", [key, reference]
        )
        return reference


def send(key: str) -> str:
    """Send a parcel."""
    with books() as connection:
        row = connection.execute("insert into parcel (key) values (%s) returning id", [key]).fetchone()
        assert row is not None
        return f"p-{row[0]}"


def sent(key: str) -> str | None:
    """What was sent under this key, if anything."""
    with books() as connection:
        row = connection.execute("select id from parcel where key = %s order by id", [key]).fetchone()
        return None if row is None else f"p-{row[0]}"
