-- How late the timer is that should have gone off first, looked for among what has been due for longest.
select coalesce(max(extract(epoch from clock_timestamp()) - (s.steps->o.step->>'until')::float8), 0)::float8 as late_seconds
from (
    select saga_id, step from sagas_outbox
    where kind = 'step' and holder is null and due_at <= clock_timestamp()
    order by due_at
    limit 100
) o
join sagas_saga s on s.id = o.saga_id
where s.steps->o.step->>'status' = 'waiting' and (s.steps->o.step->>'until')::float8 <= extract(epoch from clock_timestamp())
