-- The destinations that have waiting messages, each found by one index probe (a loose index scan), and when their oldest
-- is due.
with recursive found as (
    (select m.destination, m.due_at from sagas_message m where m.state = 'waiting'
        order by m.destination, m.due_at limit 1)
    union all
    select n.destination, n.due_at from found f cross join lateral (
        select m.destination, m.due_at from sagas_message m
        where m.state = 'waiting' and m.destination > f.destination order by m.destination, m.due_at limit 1) n
)
select f.destination, extract(epoch from f.due_at - coalesce(%(now)s::timestamptz, clock_timestamp()))::float8 as due_in,
    f.due_at
from found f
