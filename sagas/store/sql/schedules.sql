-- Schedules, by name, with the run that each started last: whether it has not ended.
with n as materialized (select coalesce(%(now)s, clock_timestamp()) as now)
select s.name, s.saga, s.version, s.timing, s.timezone, s.catch_up, s.overlap, s.fingerprint, s.revision, s.next_at,
    s.look_at, s.last_at, s.last_key, s.last_started_at, s.note, s.paused, s.actor, s.reason, s.declared_at, n.now,
    extract(epoch from n.now - s.look_at)::float8 as late,
    r.id as last_saga, r.status as last_status, r.id is not null and r.finished_at is null as open
from n, sagas_schedule s
left join lateral (
    select id, status, finished_at from sagas_saga
    where name = s.saga and key = s.last_key order by run desc limit 1) r on true
where %(name)s::text is null or s.name = %(name)s
order by s.name
