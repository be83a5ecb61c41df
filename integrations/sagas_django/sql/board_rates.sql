-- What was started, ended well (good) or not (bad), and waits for a person (held) since each minute of the last hour: of each the newest so many.
-- An id says when its saga was started, so that the primary key is all that has to be looked at; but that of a child or of
-- a next run says when what it came of was: where that is longer ago they count once they have ended.
with clock as materialized (
    select clock_timestamp() as now
), since as materialized (
    select now - interval '1 hour' as at, now,
        (lpad(to_hex((extract(epoch from now - interval '1 hour') * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid as id
    from clock
), ended as materialized (
    select s.id, s.created_at, s.finished_at, s.status from sagas_saga s
    where s.finished_at >= (select at from since) and s.finished_at is not null
    order by s.finished_at desc limit %(most)s
), happened as (
    (select s.created_at as at, 'started' as what from sagas_saga s
        where s.id >= (select id from since)
        order by s.id desc limit %(most)s)
    union all
    select e.created_at, 'started' from ended e where e.id < (select id from since)
    union all
    select e.finished_at, case when e.status = %(good)s then 'good' else 'bad' end from ended e
    union all
    select p.updated_at, 'held' from (
        select s.updated_at from sagas_saga s where s.parked_from is not null order by s.id desc limit %(most)s) p
)
select floor(extract(epoch from happened.at - since.at) / 60)::int as minute, happened.what, count(*) as sagas
from happened cross join since
where happened.at >= since.at and happened.at <= since.now
group by 1, 2
order by 1, 2
