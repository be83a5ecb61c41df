-- The lanes of queues that have rows and are not paused, each found by one index probe (a loose index scan), and when
-- their oldest is due.
with recursive found as (
    (select o.queue, o.priority, o.lane, o.due_at from sagas_outbox o
        order by o.queue, o.priority, o.lane, o.due_at limit 1)
    union all
    select n.queue, n.priority, n.lane, n.due_at from found f cross join lateral (
        select o.queue, o.priority, o.lane, o.due_at from sagas_outbox o
        where (o.queue, o.priority, o.lane) > (f.queue, f.priority, f.lane)
        order by o.queue, o.priority, o.lane, o.due_at limit 1) n
)
select f.queue, f.priority, f.lane,
    extract(epoch from f.due_at - coalesce(%(now)s::timestamptz, clock_timestamp()))::float8 as due_in, f.due_at
from found f
where not exists (select from sagas_pause p where p.kind = 'queue' and p.name = f.queue)
