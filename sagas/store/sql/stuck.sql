-- The sagas that are stuck, newest first, each with why and since when: the rule of `sagas.stuck`, for all of them.
with clock as materialized (
    select t.now, t.now - make_interval(secs => %(after)s::float8) as late
    from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) t
), limits as materialized (
    select * from unnest(%(names)s::text[], %(versions)s::int[], %(steps)s::text[], %(seconds)s::float8[])
        as l (name, version, step, seconds)
), full_up as materialized (
    select f.name from clock cross join lateral sagas_full_v1(clock.now) as f (name)
), open as (
    select s.id, s.name, s.version, s.key, s.steps, s.updated_at from sagas_saga s
    where s.finished_at is null and s.parked_from is null and not s.paused
      and (%(name)s::text is null or s.name = %(name)s::text)
      and not exists (select from sagas_pause p
          where p.kind = 'definition' and p.name = s.name and p.version in (0, s.version))
), work as (
    select s.id, s.name, s.version, s.key, o.kind, o.step, o.due_at,
        o.kind = 'step' and (s.steps->o.step->>'status' = 'waiting' or s.steps->o.step ? 'blocked'
            or o.direction = 'undo' and s.steps->o.step ? 'recalled') as waits, -- the last: children that are being undone
        to_timestamp(coalesce(s.steps->o.step->>'until', s.steps->o.step->>'blocked')::float8) as until,
        greatest(s.updated_at, o.first_begun_at) as since
    from open s join sagas_outbox o on o.saga_id = s.id
    where not exists (select from sagas_pause p where p.kind = 'queue' and p.name = o.queue)
      and not (o.kind = 'step' and o.holder is null and o.queue in (select full_up.name from full_up))
      and (o.ordering_key is null or o.kind <> 'step' or not exists ( -- else the first in its line is to be seen to
          select from sagas_outbox a where a.queue = o.queue and a.ordering_key = o.ordering_key and a.kind = 'step'
            and (a.place, a.id) < (o.place, o.id)))
), found as (
    select w.id, w.name, w.version, w.key,
        case when w.due_at < clock.late then 1 else 2 end as rank,
        case when w.due_at < clock.late then 'overdue' else 'quiet' end as reason,
        case when w.due_at < clock.late then w.due_at
             else greatest(w.since, case when w.waits then w.until end) end as since
    from work w cross join clock
    left join limits l on l.name = w.name and l.version = w.version and l.step = w.step
    where (w.waits is not true or w.until <= clock.now)
      and (w.due_at < clock.late
           or w.kind = 'step' and greatest(w.since, case when w.waits then w.until end)
              < clock.late - make_interval(secs => coalesce(l.seconds, %(other)s::float8)))
    union all
    select s.id, s.name, s.version, s.key, 0, 'no_work', s.updated_at from open s
    where not exists (select from sagas_outbox o where o.saga_id = s.id)
)
select * from (select distinct on (id) id, name, version, key, reason, since from found order by id desc, rank, since) f
order by id desc
limit %(limit)s
