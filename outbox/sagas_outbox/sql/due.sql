-- Lock due rows for a worker that runs them itself, and read their tokens. Runs inside a transaction of
-- its own together with the begin statement: claiming and loading in one statement would pair the new
-- outbox row with the saga as it was when the statement started.
with wants as materialized (
    select queue, room, mark
    from unnest(%(queues)b::text[], %(rooms)b::int[], %(marks)b::timestamptz[]) as w (queue, room, mark)
    where not exists (select from sagas_pause p where p.kind = 'queue' and p.name = w.queue)
)
select o.id, o.token, o.deliveries
from wants w cross join lateral (
    select c.id, c.token, c.deliveries from sagas_outbox c
    where c.queue = w.queue and c.due_at >= w.mark
      and c.due_at <= (select coalesce(%(now)s::timestamptz, clock_timestamp())) -- read once, so that the index ends there
      and (c.deliveries = 0 or %(begun)s)
    order by c.due_at
    limit w.room
    for update skip locked
) o
