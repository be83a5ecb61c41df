-- Messages that are being sent just now stay this relay's.
update sagas_message m
set due_at = (select coalesce(%(now)s::timestamptz, clock_timestamp())) + make_interval(secs => %(lease)s::float8)
from (
    select c.id from sagas_message c
    join unnest(%(ids)b::bigint[], %(tokens)b::bigint[]) as h (id, token) on h.id = c.id and h.token = c.token
    where c.state = 'waiting'
    order by c.id
    for update of c skip locked
) mine
where m.id = mine.id
