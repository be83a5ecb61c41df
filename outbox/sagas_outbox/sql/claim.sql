-- Take due rows to publish them, oldest first, a limited number from each queue.
-- A row never begun keeps its token, and its publish window doubles each time (capped), so that a slow
-- broker cannot make every message stale. A begun row whose lease ended gets a new token: whoever held
-- it is fenced off. `mark` is a low-water mark of due_at: it spares the scan of dead index entries.
with wants as materialized (
    select queue, room, mark
    from unnest(%(queues)b::text[], %(rooms)b::int[], %(marks)b::timestamptz[]) as w (queue, room, mark)
    where not exists (select from sagas_pause p where p.kind = 'queue' and p.name = w.queue)
), due as materialized (
    select o.id
    from wants w cross join lateral (
        select c.id from sagas_outbox c
        where c.queue = w.queue and c.due_at >= w.mark
          and c.due_at <= (select coalesce(%(now)s::timestamptz, clock_timestamp())) -- read once, so that the index ends there
          and (c.deliveries = 0 or %(begun)s)
        order by c.due_at
        limit w.room
        for update skip locked
    ) o
), claimed as (
    update sagas_outbox o
    set holder = %(holder)s,
        token = o.token + case when o.deliveries > 0 then 1 else 0 end,
        publishes = o.publishes + 1,
        due_at = coalesce(%(now)s::timestamptz, clock_timestamp())
            + make_interval(secs => %(window)s::float8 * 2 ^ least(o.publishes, %(doublings)s::int))
    from due
    where o.id = due.id
    returning o.id, o.token, o.queue, o.kind, o.saga_id, o.step, o.direction, o.deliveries, o.publishes
)
select c.id, c.token, c.queue, c.kind, s.name, c.step, c.direction, c.deliveries, c.publishes
from claimed c left join sagas_saga s on s.id = c.saga_id
order by c.id
