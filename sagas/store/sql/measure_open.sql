-- Sagas that have not ended, by name and status.
select name, status, count(*) as sagas,
    count(*) filter (where parked_from is not null) as parked,
    count(*) filter (where paused) as paused,
    count(*) filter (where failing) as failing,
    count(*) filter (where seq = 0) as fresh,
    count(*) filter (where jsonb_path_exists(steps, '$.*.status ? (@ == "waiting")')) as waiting,
    extract(epoch from clock_timestamp() - min(created_at))::float8 as oldest_seconds
from sagas_saga
where finished_at is null
group by name, status
order by name, status
