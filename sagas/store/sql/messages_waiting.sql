-- How many messages wait for each destination, and how many have died; the last error of one that waits.
select m.destination,
    count(*) filter (where m.state = 'waiting') as waiting,
    count(*) filter (where m.state = 'waiting' and m.holder is null and m.due_at <= n.now) as due,
    coalesce(extract(epoch from n.now - min(m.due_at) filter (where m.state = 'waiting' and m.holder is null)), 0)::float8
        as late,
    count(*) filter (where m.state = 'waiting' and m.failures > 0) as tried,
    count(*) filter (where m.state = 'dead') as dead,
    coalesce((array_agg(m.error order by m.id desc) filter (where m.state = 'waiting' and m.error <> ''))[1], '') as error
from sagas_message m cross join (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) n
where m.state <> 'sent'
group by m.destination, n.now
order by m.destination
