-- The saga that started one, and those that it started: what calls for a person first, then what is open, then the newest.
select c.id, c.name, c.key, c.run, c.status, c.parent_step, c.error, c.parked_from is not null as parked,
    c.finished_at is null as open, false as is_parent, c.created_at
from sagas_saga c where c.parent = %(saga)s
union all
select p.id, p.name, p.key, p.run, p.status, c.parent_step, p.error, p.parked_from is not null, p.finished_at is null, true,
    p.created_at
from sagas_saga c join sagas_saga p on p.id = c.parent where c.id = %(saga)s
order by is_parent desc, parked desc, open desc, created_at desc, id desc
limit %(limit)s
