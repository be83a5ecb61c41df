-- Sagas that have not ended, by name and status: the newest so many.
select s.name, s.status, count(*) as sagas, count(s.parked_from) as parked
from (
    select name, status, parked_from from sagas_saga where finished_at is null order by id desc limit %(most)s
) s
group by s.name, s.status
order by s.name, s.status
