-- How the children of steps stand: of each the last run only, counted by status, with one of them as an example. Items
-- that the present round is still to begin anew do not count.
select w.parent, w.branch, c.status, count(*)::int, min(c.name), min(c.key), max(c.error),
    extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()))::float8
from unnest(%(parents)s::uuid[], %(branches)s::text[], %(to_come)s::text[]) as w (parent, branch, to_come)
join sagas_saga c on c.parent = w.parent and c.parent_step = w.branch
where not exists (select from sagas_saga n where n.name = c.name and n.key = c.key and n.run > c.run)
  and (w.to_come is null or c.status <> all (%(again)s) or right(c.key, 6) < w.to_come collate "C")
group by w.parent, w.branch, c.status
