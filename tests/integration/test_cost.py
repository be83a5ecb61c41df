"""What a plain saga of three steps costs the database: statements and WAL, counted on a server of its own.

The ceilings are what was measured, and a tenth more. Whoever has to raise one says in the change what the cost buys.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import psycopg
import pytest
from django.db import connections, transaction

from sagas import Saga, external_step, step
from sagas.store import schema_files
from sagas.testing.servers import Postgres, postgres
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Ask, Lane, Room
from tests.integration.conftest import database_alias
from tests.settings import database_from_url
from tests.support.workers import one_worker, run_batch

BATCH, BATCHES = 100, 3
GROUPS = 3 * BATCH * BATCHES // 50  # of local steps
EXECUTED = re.compile(r"LOG:  (?:execute [^:]*|statement): (?:--[^\n]*\n\s*)*([^\n]+)")
NAME = re.compile(r' ".*')  # of a savepoint
START_WAL, RUN_WAL = 1400, 5300  # bytes for each saga
ENDING = 5  # statements: what the worker counted is stored when it stops, in a transaction; and its lanes, once
Steps = type[Saga[int]]


class Outside(Saga[int], name="test.cost_outside", version=1):
    """Three external steps that do nothing."""

    @external_step(compensate=None)
    def first(self) -> None: ...

    @external_step(compensate=None)
    def second(self) -> None: ...

    @external_step(pivot=True)
    def third(self) -> None: ...


class Inside(Saga[int], name="test.cost_inside", version=1):
    """Three local steps that do nothing."""

    @step(compensate=None)
    def first(self) -> None: ...

    @step(compensate=None)
    def second(self) -> None: ...

    @step(pivot=True)
    def third(self) -> None: ...


class Writing(Saga[int], name="test.cost_writing", version=1):
    """Three local steps of one statement each."""

    @step(compensate=None)
    def first(self) -> None:
        write()

    @step(compensate=None)
    def second(self) -> None:
        write()

    @step(pivot=True)
    def third(self) -> None:
        write()


def write() -> None:
    with connections["cost"].cursor() as cursor:
        cursor.execute("select 'a statement of a body'")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server that nobody else writes to, and that writes no page images, which depend on when it had a checkpoint."""
    with postgres(private=True) as server, psycopg.connect(server.dsn, autocommit=True) as admin:
        for setting in ("full_page_writes = off", "autovacuum = off", "log_statement = 'all'"):
            admin.execute(f"alter system set {setting}")
        admin.execute("select pg_reload_conf()")
        yield server


@pytest.fixture
def cost(shop: str, server: Postgres, request: pytest.FixtureRequest) -> Iterator[str]:
    """The alias "cost": a database of this test on that server."""
    name = f"cost_{abs(hash(request.node.nodeid))}"
    url = server.create_database(name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(schema_files.schema_sql(1))
    with database_alias("cost", database_from_url(url)) as alias:
        yield alias
        connections[alias].close()


def start(definition: Steps) -> None:
    """As many as are run afterwards, in as many transactions as there will be batches."""
    for batch in range(BATCHES):
        with transaction.atomic(using="cost"):
            for number in range(BATCH):
                definition.start(1, key=f"{batch}-{number}", using="cost")


def run(definition: Steps) -> None:
    """All of them, a batch at a time, as an embedded worker does that knows its lanes."""
    with one_worker("cost", goes_on=True) as worker, closing(DjangoStore("cost").connect()) as link:
        worker.settings = replace(worker.settings, flush=60)  # however slow the machine is
        lane = next(lane for lane in claims.lanes(link, now=None) if lane.lane)
        for _ in range(BATCHES):
            with link.transaction():
                room = Room("default", BATCH, asks=[Ask(Lane("default", lane.priority, lane.lane), BATCH)])
                due = claims.lock_due(link, [room], begun=True, now=None)
                begun = worker.begin(link, [held for held, _ in due], published=False)
            assert len(begun) == BATCH
            run_batch(worker, begun)


def written(server: Postgres, work: Callable[[], None]) -> float:
    """Bytes of WAL for each saga while something is done."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        here = "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
        (before,) = connection.execute(here).fetchone() or (0,)
        work()
        (after,) = connection.execute(here).fetchone() or (0,)
    return float(after - before) / BATCH / BATCHES


@contextmanager
def executed(server: Postgres) -> Iterator[Counter[str]]:
    """Counts the statements that the server executes inside the block, by how they begin."""
    found: Counter[str] = Counter()
    began = len(server.log())
    yield found
    found.update(NAME.sub("", " ".join(text.split()[:2]).lower()) for text in EXECUTED.findall(server.log()[began:]))


def updates(table: str) -> tuple[int, int]:
    """Of the rows of a table: how many updates there were, and how many of them touched no index."""
    with closing(DjangoStore("cost").connect()) as connection:
        connection.execute("select pg_stat_force_next_flush()")
        row = connection.execute(
            "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = %s", [table]
        ).fetchone()
    assert row is not None
    every, cheap = row
    return every, cheap


def test_a_plain_saga_writes_no_more_than_it_needs(cost: str, server: Postgres) -> None:
    """WAL for each saga: what `start()` writes, and what running its three external steps does."""
    begun, worked = written(server, lambda: start(Outside)), written(server, lambda: run(Outside))
    assert begun < START_WAL
    assert worked < RUN_WAL


def test_a_continued_step_touches_no_index_of_the_outbox(cost: str, server: Postgres) -> None:
    """Going on leaves the end of the lease as it is, so two of the three updates of a row are cheap ones."""
    start(Outside)
    run(Outside)
    every, cheap = updates("sagas_outbox")
    assert every == 3 * BATCH * BATCHES
    assert cheap >= 0.6 * every, cheap


def test_round_trips_of_external_steps(cost: str, server: Postgres) -> None:
    """A batch of a hundred sagas: claim and begin in one transaction, and one record for each step."""
    start(Outside)
    with executed(server) as found:
        run(Outside)
    assert found["with wanted"] == BATCHES, found  # begin
    assert found["with given"] == 4 * BATCHES, found  # one claim, three records
    assert sum(found.values()) <= 7 * BATCHES + ENDING, found


def test_round_trips_of_local_steps(cost: str, server: Postgres) -> None:
    """Local steps: six statements for each group of fifty; a body that sends nothing has no savepoint."""
    start(Inside)
    with executed(server) as found:
        run(Inside)
    assert found["savepoint"] == found["release savepoint"] == 0, found
    assert sum(found.values()) <= 4 * BATCHES + 6 * GROUPS + ENDING, found


def test_round_trips_of_savepoints(cost: str, server: Postgres) -> None:
    """The savepoint of a body, and the end of the one before, are sent with the first statement of the body."""
    start(Writing)
    with executed(server) as found:
        run(Writing)
    bodies = 3 * BATCH * BATCHES
    assert found.pop("savepoint") == GROUPS, found  # of the first in each group
    assert found.pop("release savepoint") == bodies, found  # of the others, and once at the end of each group
    assert sum(found.values()) <= 4 * BATCHES + 6 * GROUPS + ENDING, found
