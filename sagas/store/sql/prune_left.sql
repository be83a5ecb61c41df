-- Requests of sagas that were pruned in the moment they were made: nobody could ever apply them. They are looked for in
-- the lanes of requests, of which there is one for each queue and priority, and not among all the work that waits.
with recursive lanes as (
    (select o.queue, o.priority from sagas_outbox o order by o.queue, o.priority limit 1)
    union all
    select n.queue, n.priority from lanes l cross join lateral (
        select o.queue, o.priority from sagas_outbox o
        where (o.queue, o.priority) > (l.queue, l.priority)
        order by o.queue, o.priority limit 1) n
)
delete from sagas_outbox o where o.id in (
    select r.id from lanes l cross join lateral (
        select c.id from sagas_outbox c
        where c.queue = l.queue and c.priority = l.priority and c.lane = 0
          and c.saga_id is not null and c.kind <> 'step' and c.holder is null
          and c.timer_at < clock_timestamp() - interval '1 hour'
          and not exists (select from sagas_saga s where s.id = c.saga_id)
          and not exists (select from sagas_log e where e.saga_id = c.saga_id) -- else its row was lost: rebuild it
        limit %(limit)s
        for update of c skip locked) r
    limit %(limit)s
)
returning o.id
