-- What keeps sagas waiting that their own rows do not tell. Other sagas: parked ones among those that they started, or
-- these; the first in the line of their ordering key. A queue at its limit, or that nobody takes their work: a queue's
-- name is in `name` then. The time of a last look; that a worker's claim has ended, whose name is in `error` then. That the
-- saga's work is lost.
with recursive below as (
    select w.id as saga_id, null::text as step, w.id, 0 as depth from unnest(%(ids)s::uuid[]) as w (id)
    union all
    select b.saga_id, coalesce(b.step, c.parent_step), c.id, b.depth + 1
    from below b cross join lateral (
        select s.id, s.parent_step from sagas_saga s
        where s.parent = b.id and s.parent is not null and s.finished_at is null
        order by s.parked_from is null, s.id
        limit 20
    ) c
    where b.depth < 5
), kin as materialized (
    select * from below limit 2000
)
(select k.saga_id, 'child' as kind, split_part(k.step, '~', 1) as step, s.id, s.name, s.key, s.error,
    null::timestamptz as since
from kin k join sagas_saga s on s.id = k.id
where k.depth > 0 and s.parked_from is not null
order by k.depth, s.id
limit %(limit)s)
union all
(select o.saga_id, 'line', o.step, s.id, s.name, s.key, o.ordering_key, null
from sagas_outbox o cross join lateral (
    select a.saga_id from sagas_outbox a
    where a.queue = o.queue and a.ordering_key = o.ordering_key and a.kind = 'step' and (a.place, a.id) < (o.place, o.id)
    order by a.place, a.id
    limit 1
) first join sagas_saga s on s.id = first.saga_id
where o.saga_id = any(%(ids)s::uuid[]) and o.kind = 'step' and o.ordering_key is not null
  and (select exists (select from sagas_outbox l where l.kind = 'step' and l.ordering_key is not null))
limit %(limit)s)
union all
(select o.saga_id, case when o.kind = 'step' and o.queue in (select f from sagas_full_v1(clock_timestamp()) f)
        then 'full' else 'late' end, coalesce(o.step, o.kind), o.saga_id, o.queue, '', '', o.due_at
from sagas_outbox o
where o.saga_id = any(%(ids)s::uuid[]) and o.holder is null and o.due_at < clock_timestamp() - interval '10 seconds'
  and not exists (select from sagas_pause p where p.kind = 'queue' and p.name = o.queue)
order by o.due_at
limit %(limit)s)
union all
(select o.saga_id, case when o.holder is null then 'settle' else 'expired' end, coalesce(o.step, o.kind), o.saga_id,
    o.queue, '', coalesce(o.holder, ''), o.due_at
from sagas_outbox o
where o.saga_id = any(%(ids)s::uuid[])
  and (o.holder is null and o.direction = 'settle' and o.due_at > clock_timestamp()
       or o.holder like 'worker:%%' and o.due_at <= clock_timestamp())
order by o.due_at
limit %(limit)s)
union all
(select o.saga_id, 'unserved', coalesce(o.step, o.kind), o.saga_id, o.queue, '', '', o.due_at
from sagas_outbox o
where o.saga_id = any(%(ids)s::uuid[]) and o.holder like 'relay:%%' and o.publishes >= 3
order by o.id
limit %(limit)s)
union all
(select s.id, 'lost', '', s.id, s.name, s.key, '', s.updated_at
from sagas_saga s
where s.id = any(%(ids)s::uuid[]) and s.finished_at is null and s.parked_from is null
  and not exists (select from sagas_outbox o where o.saga_id = s.id)
order by s.id
limit %(limit)s)
