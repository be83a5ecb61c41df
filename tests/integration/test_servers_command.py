"""`python -m sagas.testing`: servers to try things on."""

from __future__ import annotations

import re

import psycopg
import pytest

from sagas.testing.processes import ProcessGroup


@pytest.mark.slow
def test_servers_until_told(process_group: ProcessGroup) -> None:
    """It prints where an empty database is, which is there until it is told to end, and gone afterwards."""
    process = process_group.python(
        "-m",
        "sagas.testing",
        "--database",
        "trial",
        "--redis",
        name="servers",
        env={"DATABASE_URL": "", "REDIS_URL": ""},
    )
    process.wait_for_output("REDIS_URL", timeout=60)
    (url,) = re.findall(r"export DATABASE_URL=(\S+)", process.output())
    with psycopg.connect(url, connect_timeout=10) as connection:
        assert connection.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone() == (0,)
    assert "PGDATABASE=trial" in process.output()
    process.terminate()
    assert process.wait(30) == 0, process.output()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url, connect_timeout=5)
