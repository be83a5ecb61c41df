-- The lanes of queues, each found by one probe of the index on (queue, priority, lane, due_at): whose work is in it, and
-- when its oldest is due. Lane 0 has requests of operators, callers and signals.
with recursive found as (
    (select o.id, o.queue, o.priority, o.lane, o.due_at, 1 as hops from sagas_outbox o
        order by o.queue, o.priority, o.lane, o.due_at limit 1)
    union all
    select n.id, n.queue, n.priority, n.lane, n.due_at, f.hops + 1 from found f cross join lateral (
        select o.id, o.queue, o.priority, o.lane, o.due_at from sagas_outbox o
        where (o.queue, o.priority, o.lane) > (f.queue, f.priority, f.lane)
        order by o.queue, o.priority, o.lane, o.due_at limit 1) n
    where f.hops < %(limit)s
)
select f.queue, f.priority, f.lane, f.due_at, s.name,
    extract(epoch from clock_timestamp() - f.due_at)::float8 as late
from found f left join sagas_outbox o on o.id = f.id left join sagas_saga s on s.id = o.saga_id
order by f.queue, f.priority desc, f.due_at
