select token, name, step, fingerprint, count(*) filter (where parked) as parked, count(*) filter (where not parked) as ended,
    min(at) as first_at, max(at) as last_at, (array_agg(id order by id desc))[1] as newest
from grouped
group by token, name, step, fingerprint
order by count(*) filter (where parked) desc, max(at) desc
limit %(limit)s
