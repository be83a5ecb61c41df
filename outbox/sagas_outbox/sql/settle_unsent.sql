-- These messages were not sent: due again after a while, or dead. What could not be tried counts for nothing.
update sagas_message m
set holder = null,
    failures = m.failures + case when u.counts then 1 else 0 end,
    error = case when u.error = '' then m.error else u.error end,
    state = case when u.dead then 'dead' else m.state end,
    finished_at = case when u.dead then coalesce(%(now)s::timestamptz, clock_timestamp()) end,
    due_at = (select coalesce(%(now)s::timestamptz, clock_timestamp())) + make_interval(secs => u.delay)
from (
    select c.id, h.counts, h.dead, h.delay, h.error
    from sagas_message c
    join unnest(
        %(ids)b::bigint[], %(tokens)b::bigint[], %(counts)b::bool[], %(dead)b::bool[], %(delays)b::float8[],
        %(errors)b::text[]
    ) as h (id, token, counts, dead, delay, error) on h.id = c.id and h.token = c.token
    where c.state = 'waiting'
    order by c.id
    for update of c
) u
where m.id = u.id
returning m.id
