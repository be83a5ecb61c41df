-- How many sagas of each definition have not ended, by the steps they were started with.
select name, version, definition, count(*) as unfinished, min(created_at) as oldest
from sagas_saga
where finished_at is null
group by name, version, definition
order by name, version, definition
