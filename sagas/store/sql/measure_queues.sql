-- What is in the outbox, by queue. Due: nobody holds it. Published: in the broker. Expired: its worker's claim ended.
-- Unclaimed: what no relay or worker has ever taken, where nothing explains that: no pause, no limit that is reached, and
-- nothing that is on its way to a worker. Unserved: published three times or more since a worker had it, while no worker
-- has anything of that queue.
select o.queue,
    count(*) filter (where o.holder is null and o.due_at <= clock.now) as due,
    count(*) filter (where o.holder is null and o.due_at > clock.now) as later,
    count(*) filter (where o.holder like 'relay:%%') as published,
    count(*) filter (where o.holder like 'worker:%%') as running,
    count(*) filter (where o.holder like 'worker:%%' and o.due_at <= clock.now) as expired,
    case when bool_or(o.holder like 'worker:%%' and o.due_at > clock.now) then 0
        else count(*) filter (where o.holder like 'relay:%%' and o.publishes >= 3) end as unserved,
    coalesce(extract(epoch from clock.now - min(o.due_at) filter (where o.holder is null and o.due_at <= clock.now)), 0)
        ::float8 as oldest_seconds,
    case when bool_or(o.holder like 'relay:%%' and o.due_at > clock.now)
            or o.queue in (select p.name from sagas_pause p where p.kind = 'queue')
            or o.queue in (select f from sagas_full_v1(clock.now) f) then 0
        else coalesce(extract(epoch from clock.now - min(o.due_at) filter (
            where o.holder is null and o.due_at <= clock.now and o.publishes = 0 and o.deliveries = 0)), 0)
        end::float8 as unclaimed_seconds
from sagas_outbox o cross join (select clock_timestamp() as now) clock
group by o.queue, clock.now
order by o.queue
