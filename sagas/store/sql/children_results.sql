-- What the children of a step have brought, in order; null of one that has no such result.
select c.key, (l.data->'result')::text
from sagas_saga c
left join sagas_log l on l.saga_id = c.id and l.seq = coalesce((c.steps->%(step)s->>'result')::int, -1)
where c.parent = %(parent)s and c.parent_step = %(branch)s
  and not exists (select from sagas_saga n where n.name = c.name and n.key = c.key and n.run > c.run)
order by c.key
