-- A local step locks its outbox row first, for as long as its transaction lasts; a row that is gone, taken
-- or locked is not returned. The sagas are read by a statement of its own afterwards (load.sql).
select o.id
from sagas_outbox o
join unnest(%(ids)b::bigint[], %(tokens)b::bigint[]) as w (id, token) on w.id = o.id and w.token = o.token
order by o.id
for update of o skip locked
