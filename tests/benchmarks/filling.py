"""Filling the tables by bare SQL, as a system looks after years, or in front of a mountain of work."""

from __future__ import annotations

import psycopg

from sagas import Saga

# Ids grow with time, as those of `start()` do: what happens at one time is on few pages of each index.
ID_AT = """
create or replace function pg_temp.id_at(at timestamptz) returns uuid volatile return
    (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || substr(gen_random_uuid()::text, 16))::uuid
"""

# A finished saga of three steps and its five log entries. `%(from)s` to `%(to)s` are their numbers.
FINISHED = """
with made as (
    insert into sagas_saga
        (id, name, version, key, status, seq, input_hash, definition, finished_at, created_at, updated_at)
    select pg_temp.id_at(t.at), %(name)s, 1, 'finished-' || n, 'completed', 4, '', %(definition)s, t.at, t.at, t.at
    from generate_series(%(from)s::bigint, %(to)s::bigint) n,
        lateral (select clock_timestamp() - interval '1 second' * (n %% 2000000) - interval '1 day' * %(days)s as at) t
    returning id, finished_at
)
insert into sagas_log (saga_id, seq, kind, step, attempt, data, at)
select made.id, e.seq, e.kind, e.step, 1, e.data::jsonb, made.finished_at
from made, (values (0, 'started', null, '{"saga": {"input": {"number": 1}, "headers": {}}}'),
    (1, 'step_done', 'first', '{"direction": "do", "deliveries": 1, "result": null}'),
    (2, 'step_done', 'second', '{"direction": "do", "deliveries": 1, "result": null}'),
    (3, 'step_done', 'third', '{"direction": "do", "deliveries": 1, "result": null}'),
    (4, 'completed', null, '{}')) as e (seq, kind, step, data)
"""

# Copies of one saga that `start()` made, each with its first log entry and its due outbox row.
DUE = """
with model as (
    select s.*, l.data, o.queue as the_queue, o.step as the_step, o.lane as the_lane
    from sagas_saga s join sagas_log l on l.saga_id = s.id and l.seq = 0 join sagas_outbox o on o.saga_id = s.id
    where s.name = %(name)s and s.key = %(key)s
), made as (
    insert into sagas_saga (id, name, version, key, status, seq, input_hash, definition)
    select pg_temp.id_at(clock_timestamp()), name, version, key || '-' || n, status, seq, input_hash, definition
    from model, generate_series(%(from)s::bigint, %(to)s::bigint) n
    returning id
), logged as (
    insert into sagas_log (saga_id, seq, kind, data) select made.id, 0, 'started', model.data from made, model
)
insert into sagas_outbox (saga_id, kind, step, direction, queue, lane)
select made.id, 'step', the_step, 'do', the_queue, the_lane from made, model
"""

# What working those off leaves behind: a begin, two records, and the end of the row. Each is a statement of its own,
# and so leaves a version of the row.
PAST = (
    """update sagas_outbox
        set holder = 'worker:past', deliveries = 1, publishes = 1, first_begun_at = clock_timestamp(),
            due_at = clock_timestamp() + interval '30 seconds'
        where saga_id in (select id from past)""",
    *(f"""with saga as (
            update sagas_saga set seq = seq + 1, updated_at = clock_timestamp() where id in (select id from past))
        update sagas_outbox set step = '{step}', token = token + 1, first_begun_at = clock_timestamp()
        where saga_id in (select id from past)""" for step in ("second", "third")),
    """with saga as (
            update sagas_saga set seq = seq + 2, status = 'completed', finished_at = clock_timestamp(),
                updated_at = clock_timestamp() where id in (select id from past))
        delete from sagas_outbox where saga_id in (select id from past)""",
)  # fmt: skip
PAST_IDS = """create temp table past on commit drop as
select s.id from sagas_saga s where s.name = %(name)s and s.finished_at is null and s.key like %(key)s || '-%%'"""
SLICE = 50_000  # sagas in one statement


def fill_finished(
    connection: psycopg.Connection[object], definition: type[Saga[object]], count: int, *, days: int = 0, first: int = 0
) -> None:
    """Add so many finished sagas with five log entries each, and bring the statistics up to date.

    Args:
        connection: in autocommit.
        definition: of the sagas.
        count: how many.
        days: since the youngest of them ended.
        first: the number in the key of the first.
    """
    known = {"name": definition.saga_name, "definition": definition.fingerprint(), "days": days}
    _fill(connection, FINISHED, count, known, first)


def fill_due(connection: psycopg.Connection[object], *, name: str, key: str, count: int) -> None:
    """Add so many copies of a saga that was just started, all of them due."""
    _fill(connection, DUE, count, {"name": name, "key": key})


def fill_past(connection: psycopg.Connection[object], *, name: str, key: str, count: int) -> None:
    """Start so many copies of a saga that was just started, and end them, as workers would, row version by row version.

    A transaction that is older keeps all these versions in tables and indexes. Of the log only the first entries are
    written, which nothing ever updates.
    """
    known = {"name": name, "key": key}
    connection.execute(ID_AT)
    for number in range(0, count, SLICE):
        connection.execute(DUE, {**known, "from": number, "to": min(number + SLICE, count) - 1})
        with connection.transaction():
            connection.execute(PAST_IDS, known)
            connection.execute("analyze past")
            for statement in PAST:
                connection.execute(statement)  # type: ignore[arg-type]
    connection.execute("vacuum analyze")


def _fill(
    connection: psycopg.Connection[object], sql: str, count: int, known: dict[str, object], first: int = 0
) -> None:
    connection.execute(ID_AT)
    for number in range(first, first + count, SLICE):
        last = min(number + SLICE, first + count) - 1
        connection.execute(sql, {**known, "from": number, "to": last})  # type: ignore[arg-type]
    connection.execute("vacuum analyze")
