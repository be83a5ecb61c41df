-- A local step locks its outbox row first, for as long as its transaction lasts; a row that is gone, taken
-- or locked is not returned. The sagas are read by a statement of its own afterwards (load.sql).
-- any(array[id]) is looked up by index also where the planner believes the outbox to be empty; "=" may read it whole.
with wanted as materialized (
    select * from unnest(%(ids)b::bigint[], %(tokens)b::bigint[]) as w (id, token)
    where w.id between 1 and 9223372036854775807 -- always: the planner expects few, and uses the index
)
select o.id
from wanted w join sagas_outbox o on o.id = any(array[w.id]) and o.token = w.token
order by w.id
for update of o skip locked
