-- The broker did not take these rows: as if they had not been claimed, but for a pause; or they were too much, and are
-- due as they were. A begun row keeps its new token; a message that got through after all begins nothing, and the next
-- one does.
-- any(array[id]) is looked up by index also where the planner believes the outbox to be empty; "=" may read it whole.
update sagas_outbox o
set holder = null,
    publishes = greatest(o.publishes - 1, 0),
    due_at = coalesce(mine.due_at,
        coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(delay)s::float8))
from (
    select c.id, h.due_at from sagas_outbox c
    join unnest(%(ids)b::bigint[], %(tokens)b::bigint[], %(due_ats)s::timestamptz[]) as h (id, token, due_at)
        on c.id = any(array[h.id]) and h.token = c.token
    where c.holder = %(holder)s
    order by h.id
    for update of c skip locked
) mine
where o.id = any(array[mine.id])
returning o.id
