-- What is in the outbox, by queue. Due: nobody holds it. Published: in the broker. Expired: its worker's claim ended.
-- Unclaimed: what no relay or worker has ever taken.
select o.queue,
    count(*) filter (where o.holder is null and o.due_at <= clock.now) as due,
    count(*) filter (where o.holder is null and o.due_at > clock.now) as later,
    count(*) filter (where o.holder like 'relay:%%') as published,
    count(*) filter (where o.holder like 'worker:%%') as running,
    count(*) filter (where o.holder like 'worker:%%' and o.due_at <= clock.now) as expired,
    coalesce(extract(epoch from clock.now - min(o.due_at) filter (where o.holder is null and o.due_at <= clock.now)), 0)
        ::float8 as oldest_seconds,
    coalesce(extract(epoch from clock.now - min(o.due_at) filter (
        where o.holder is null and o.due_at <= clock.now and o.publishes = 0 and o.deliveries = 0)), 0)
        ::float8 as unclaimed_seconds
from sagas_outbox o cross join (select clock_timestamp() as now) clock
group by o.queue, clock.now
order by o.queue
