-- The queues with limits, by name, and how much of them is used.
select q.name, q.concurrency, q.rate, q.period, q.declared is not null as declared, q.actor, q.reason, q.at,
    coalesce(used.at_work, 0)::integer as at_work, coalesce(used.published, 0)::integer as published,
    case when q.period is null then 0 else (
        select coalesce(sum(n), 0) from unnest(sagas_spent_v1(q.spent, q.spent_at, greatest(q.spent_at,
            floor(extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp())) * 20 / q.period)::bigint))) n
    ) end::integer as lately
from sagas_queue q left join lateral (
    select count(*) filter (where s.begun) as at_work, count(*) filter (where not s.begun) as published
    from sagas_slot s join sagas_outbox o on o.id = s.outbox_id and o.token = s.token
    where s.queue = q.name and o.holder is not null
      and (s.begun or o.due_at > coalesce(%(now)s::timestamptz, clock_timestamp()))
) used on true
order by q.name
