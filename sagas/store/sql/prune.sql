-- Prune: archive a batch of sagas that ended long ago, leave their keys behind, and remove them, in one statement.
-- Left alone: whatever has work, a request or a signal on its way, and whatever belongs to children that have not ended,
-- or to a parent, or a parent's parent, that has not: it may turn back, and undoes them then. What another transaction has locked is left out. Only one prunes at a time. The time is that of the
-- statement, which an index can be searched by; a few moments do not matter here.
with found as materialized (
    select s.id, s.name, s.key, s.run, s.version, s.status, s.input_hash, s.finished_at, s.parent,
        set_config('sagas.pruning', 'on', true) as pruning
    from sagas_saga s
    where s.finished_at is not null
      and s.finished_at < coalesce(%(now)s::timestamptz, statement_timestamp()) - make_interval(secs => %(age)s::float8)
      and s.finished_at >= coalesce(%(after)s::timestamptz, '-infinity')
      and (%(name)s::text is null or s.name = %(name)s::text)
      and s.id <> all(%(without)s::uuid[])
      -- limit 1: looked up for one saga after the other, never for all that are old enough. `<> 1`, of which the planner
      -- expects that nearly all pass, so that it reads the oldest by index; of `is null` it expects none, and sorts all
      and coalesce((select 1 from sagas_outbox o where o.saga_id = s.id limit 1), 0) <> 1
      and coalesce((select 1 from sagas_outbox o
           where o.kind = 'signal' and o.ordering_key = s.name || ' ' || s.key limit 1), 0) <> 1
      and case when s.parent is null then 0 else coalesce((
          with recursive above as (
              select p.parent, p.finished_at from sagas_saga p where p.id = s.parent
              union all
              select p.parent, p.finished_at from above a join sagas_saga p on p.id = a.parent
              where a.finished_at is not null
          )
          select 1 from above a where a.finished_at is null limit 1), 0) end <> 1
      and coalesce((select 1 from sagas_saga c where c.parent = s.id and c.finished_at is null limit 1), 0) <> 1
      and (select pg_try_advisory_xact_lock(7236, hashtext('sagas.prune' || current_schema())))
    order by s.finished_at
    limit %(limit)s
    for update of s skip locked
), old as materialized ( -- none where it is only to be said which they are
    select * from found where not %(only_say)s::boolean
), archived as (
    insert into sagas_archive (saga_id, name, key, status, finished_at, data)
    select old.id, old.name, old.key, old.status, old.finished_at, jsonb_build_object(
        'saga', to_jsonb(s),
        'log', (select coalesce(jsonb_agg(to_jsonb(l) - 'saga_id' order by l.seq), '[]')
                from sagas_log l where l.saga_id = old.id),
        'dedupe', (select coalesce(jsonb_agg(to_jsonb(d) - 'saga_id' order by d.key), '[]')
                   from sagas_dedupe d where d.saga_id = old.id))
    from old join sagas_saga s on s.id = old.id
    where %(archive)s
    on conflict (saga_id) do nothing
), keys as ( -- a key that nobody chose cannot be used again
    insert into sagas_tombstone (name, key, run, saga_id, version, status, input_hash, finished_at)
    select name, key, run, id, version, status, input_hash, finished_at from old where key <> id::text and parent is null
    on conflict (name, key, run) do nothing
), log as (
    delete from sagas_log l using old where l.saga_id = old.id and old.pruning = 'on'
), dedupe as (
    delete from sagas_dedupe d using old where d.saga_id = old.id
), signal as (
    delete from sagas_signal g using old
    where g.name = old.name and g.key = old.key and not exists (
        select from sagas_saga s where s.name = old.name and s.key = old.key and s.id not in (select id from old))
), saga as (
    delete from sagas_saga s using old where s.id = old.id
)
select id, name, key, finished_at from found
