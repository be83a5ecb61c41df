-- Wait until nobody else holds the locks of rows that are still as the caller knows them. A claim locks rows for a
-- moment that it then does not take, and a heartbeat locks what it renews: SKIP LOCKED alone would take that for
-- somebody else's work.
select o.id
from sagas_outbox o
join unnest(%(ids)b::bigint[], %(tokens)b::bigint[]) as w (id, token) on w.id = o.id and w.token = o.token
order by o.id
for update of o
