-- Plain messages by destination, each kind by its index: those that are sent are not looked at.
select destination, sum(waiting)::bigint as waiting, sum(dead)::bigint as dead,
    coalesce(greatest(extract(epoch from clock_timestamp() - min(due_at)), 0), 0)::float8 as oldest_seconds
from (
    select destination, count(*) as waiting, 0 as dead, min(due_at) as due_at from sagas_message
    where state = 'waiting' group by destination
    union all
    select destination, 0, count(*), null from sagas_message where state = 'dead' group by destination
) found
group by destination
order by destination
