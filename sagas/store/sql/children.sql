-- How the children of steps stand: of each the last run only, counted by status, with one of them as an example.
select w.parent, w.branch, c.status, count(*)::int, min(c.name), min(c.key), max(c.error),
    extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()))::float8
from unnest(%(parents)s::uuid[], %(branches)s::text[]) as w (parent, branch)
join sagas_saga c on c.parent = w.parent and c.parent_step = w.branch
where not exists (select from sagas_saga n where n.name = c.name and n.key = c.key and n.run > c.run)
group by w.parent, w.branch, c.status
