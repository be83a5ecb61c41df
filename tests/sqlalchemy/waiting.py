"""Waiting for what the database says, with an end."""

from __future__ import annotations

import time
from typing import Any

import psycopg

from sagas.testing.processes import ProcessGroup

LONGEST = 60.0  # seconds, on a machine that is busy
EVERY = 0.05


def wait_for(url: str, sql: str, processes: ProcessGroup | None = None) -> Any:
    """The one value of the first row that a query finds, as soon as it finds one.

    Args:
        url: the database.
        sql: the query.
        processes: whose output is in the report, should it find none in time.
    """
    end = time.monotonic() + LONGEST
    with psycopg.connect(url, autocommit=True) as connection:
        while time.monotonic() < end:
            row = connection.execute(sql.encode()).fetchone()
            if row is not None:
                return row[0]
            time.sleep(EVERY)
    report = processes.report() if processes else ""
    raise AssertionError(f"nothing found within {LONGEST} s by {sql}\n{report}")
