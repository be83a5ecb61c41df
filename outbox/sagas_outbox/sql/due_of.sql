-- Like due.sql, for a worker that has room apart for certain work, named as saga name, step and direction. Only the
-- oldest rows of a queue are looked at, so that a large backlog of one kind does not make every look at it long.
with wants as materialized (
    select queue, room, mark
    from unnest(%(queues)b::text[], %(rooms)b::int[], %(marks)b::timestamptz[]) as w (queue, room, mark)
    where not exists (select from sagas_pause p where p.kind = 'queue' and p.name = w.queue)
)
select o.id, o.token, o.deliveries
from wants w cross join lateral (
    select c.id, c.token, c.deliveries
    from (
        select id from sagas_outbox
        where queue = w.queue and due_at >= w.mark
          and due_at <= (select coalesce(%(now)s::timestamptz, clock_timestamp()))
          and (deliveries = 0 or %(begun)s)
        order by due_at
        limit 5000
    ) oldest
    join sagas_outbox c on c.id = oldest.id
    left join sagas_saga s on s.id = c.saga_id
    where c.queue = w.queue
      and c.due_at <= (select coalesce(%(now)s::timestamptz, clock_timestamp()))
      and (c.deliveries = 0 or %(begun)s)
      and coalesce(concat_ws(' ', s.name, c.step, c.direction) = any(%(work)b::text[]), false) <> %(but)s
    order by c.due_at
    limit w.room
    for update of c skip locked
) o
