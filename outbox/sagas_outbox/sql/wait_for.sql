-- Wait until nobody else holds the locks of rows that are still as the caller knows them. A claim locks rows for a
-- moment that it then does not take, and a heartbeat locks what it renews: SKIP LOCKED alone would take that for
-- somebody else's work.
with wanted as materialized (
    select * from unnest(%(ids)b::bigint[], %(tokens)b::bigint[]) as w (id, token)
    where w.id between 1 and 9223372036854775807 -- always: the planner expects few, and uses the index
)
select o.id
from wanted w join sagas_outbox o on o.id = any(array[w.id]) and o.token = w.token
order by w.id
for update of o
