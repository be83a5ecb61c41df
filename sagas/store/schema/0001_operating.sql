-- What operators have besides: keys of pruned sagas, the archive, counters, and views for analysts.

-- The key of a saga that was pruned: nobody can start it again, and a late signal for it is dropped.
create table sagas_tombstone (
    name text not null,
    key text not null,
    run integer not null,
    saga_id uuid not null,
    version integer not null,
    status text not null,
    input_hash text not null,
    finished_at timestamptz not null,
    constraint sagas_tombstone_pkey primary key (name, key, run)
);

-- What was pruned, whole: the saga row, its log, and what the dedupe table knew of it.
create table sagas_archive (
    saga_id uuid not null constraint sagas_archive_pkey primary key,
    name text not null,
    key text not null,
    status text not null,
    finished_at timestamptz not null,
    archived_at timestamptz not null default clock_timestamp(),
    data jsonb not null
);

-- What happened so far, counted by workers, so that it only ever grows, whatever is pruned.
create table sagas_tally (
    name text not null, -- of the saga; nothing: about no one saga
    step text not null,
    what text not null,
    count bigint not null default 0,
    seconds double precision not null default 0,
    constraint sagas_tally_pkey primary key (name, step, what)
) with (fillfactor = 50);

-- Sagas that have ended, by when: for "all that failed last month", and for pruning.
create index sagas_saga_ended on sagas_saga (finished_at) where finished_at is not null;

-- Views for analysts, without payloads. Statuses are those of sagas.states; a test compares them.
create view sagas_v_status as
select s.id, s.name, s.version, s.key, s.run, s.status, s.parked_from, s.paused, s.cancel_requested, s.parent,
    s.subject_type, s.subject_id, s.created_at, s.updated_at, s.finished_at, s.deadline, s.error,
    extract(epoch from coalesce(s.finished_at, clock_timestamp()) - s.created_at)::float8 as seconds,
    work.steps as next_steps, work.due_at as next_due_at
from sagas_saga s
left join lateral (
    select array_agg(o.step order by o.id) as steps, min(o.due_at) as due_at
    from sagas_outbox o where o.saga_id = s.id and o.kind = 'step'
) work on s.finished_at is null;

create view sagas_v_steps as
select s.id as saga_id, s.name, s.version, s.key, s.status as saga_status, s.created_at, s.finished_at,
    e.key as step, coalesce(e.value->>'status', 'pending') as status,
    coalesce((e.value->'do'->>'attempts')::integer, 0) as attempts,
    coalesce((e.value->'undo'->>'attempts')::integer, 0) as undo_attempts,
    coalesce((e.value->'do'->>'unknown')::boolean, false) or coalesce((e.value->'undo'->>'unknown')::boolean, false)
        as outcome_unknown,
    coalesce((e.value->>'generation')::integer, 0) as done_anew,
    to_timestamp((e.value->'do'->>'first_begun_at')::float8) as first_begun_at,
    ended.at as ended_at
from sagas_saga s
cross join lateral jsonb_each(s.steps) as e
left join sagas_log ended on ended.saga_id = s.id and ended.seq = (e.value->>'ended')::integer and ended.seq > 0;

create view sagas_v_failures as
select s.id, s.name, s.version, s.key, s.run, s.status, s.parked_from, s.created_at, s.finished_at as failed_at, s.error,
    s.subject_type, s.subject_id
from sagas_saga s where s.finished_at is not null and s.status <> 'completed'
union all
select s.id, s.name, s.version, s.key, s.run, s.status, s.parked_from, s.created_at, s.updated_at, s.error,
    s.subject_type, s.subject_id
from sagas_saga s where s.parked_from is not null;

create view sagas_v_attempts as
select l.saga_id, s.name, s.version, s.key, l.seq, l.at, l.kind, l.step, l.attempt,
    l.data->'error'->>'type' as error_type, l.data->'error'->>'message' as error_message,
    coalesce((l.data->>'unknown')::boolean, false) as outcome_unknown, (l.data->>'retry_in')::float8 as retry_in
from sagas_log l join sagas_saga s on s.id = l.saga_id
where l.data ? 'error';

create view sagas_v_queues as
select o.queue, count(*) filter (where o.due_at <= clock.now and o.holder is null) as due,
    count(*) filter (where o.holder like 'relay:%') as published,
    count(*) filter (where o.holder like 'worker:%') as running,
    count(*) filter (where o.holder like 'worker:%' and o.due_at <= clock.now) as expired,
    count(*) filter (where o.due_at > clock.now and o.holder is null) as later,
    coalesce(extract(epoch from clock.now - min(o.due_at) filter (where o.holder is null and o.due_at <= clock.now)), 0)
        ::float8 as oldest_seconds
from sagas_outbox o cross join (select clock_timestamp() as now) clock
group by o.queue, clock.now;
