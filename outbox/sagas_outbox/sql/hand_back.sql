-- Give rows back that were begun and whose body never started: only this delivery is taken off the count. Where it
-- was the first, nobody has used the key yet. The broker has delivered: its publish window need not stay long.
-- After a failover another worker may hold the row under the same token: what is not ours is left alone.
-- any(array[id]) is looked up by index also where the planner believes the outbox to be empty; "=" may read it whole.
with mine as materialized (
    select c.id from sagas_outbox c
    join unnest(%(ids)b::bigint[], %(tokens)b::bigint[]) as h (id, token) on c.id = any(array[h.id]) and h.token = c.token
    where %(holder)s::text is null or c.holder = %(holder)s
    order by h.id
    for update of c skip locked
), unspent as materialized ( -- their places in queues with limits
    select sagas_unspent_v1(array(select m.id from mine m)) as rows where (select exists (select from sagas_slot))
)
update sagas_outbox o
set holder = null,
    token = o.token + 1,
    deliveries = greatest(o.deliveries - 1, 0),
    first_begun_at = case when o.deliveries > 1 then o.first_begun_at end,
    publishes = 0,
    due_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(delay)s::float8)
from mine left join unspent on true
where o.id = any(array[mine.id])
returning o.id
