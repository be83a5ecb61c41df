-- What is in the outbox, by queue: of each queue so many rows, in the order of the index on (queue, priority, lane,
-- due_at), in which each queue is found by a probe. Expired: begun again, since nothing had come of the claim before. Retried: after a failure.
with recursive found(queue, hops) as (
    (select o.queue, 1 from sagas_outbox o order by o.queue limit 1)
    union all
    select (select o.queue from sagas_outbox o where o.queue > f.queue order by o.queue limit 1), f.hops + 1
    from found f where f.queue is not null and f.hops < %(limit)s
), clock as materialized (
    select clock_timestamp() as now
)
select f.queue, d.*
from found f cross join clock cross join lateral (
    select count(*) as rows,
        count(*) filter (where o.holder is null and o.due_at <= clock.now) as due,
        count(*) filter (where o.holder is null and o.due_at > clock.now) as later,
        count(*) filter (where o.holder like 'relay:%%') as published,
        count(*) filter (where o.holder like 'worker:%%') as running,
        count(*) filter (where o.failures > 0) as retried,
        count(*) filter (where o.deliveries > 1 or o.holder is not null and o.due_at <= clock.now) as expired,
        coalesce(extract(epoch from clock.now - min(o.due_at) filter (where o.holder is null and o.due_at <= clock.now)), 0)
            ::float8 as oldest_seconds
    from (
        select r.holder, r.due_at, r.failures, r.deliveries from sagas_outbox r where r.queue = f.queue
        order by r.priority, r.lane, r.due_at limit %(most)s
    ) o
) d
where f.queue is not null
order by d.oldest_seconds desc, f.queue
