-- The first queues that have rows, each found by one probe of the index on (queue, due_at).
with recursive found(queue, hops) as (
    (select o.queue, 1 from sagas_outbox o order by o.queue limit 1)
    union all
    select (select o.queue from sagas_outbox o where o.queue > f.queue order by o.queue limit 1), f.hops + 1
    from found f where f.queue is not null and f.hops < %(limit)s
)
select f.queue from found f where f.queue is not null order by f.queue
