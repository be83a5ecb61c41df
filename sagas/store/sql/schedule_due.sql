-- Schedules that are to be looked at, with the run that each started last, if that has not ended, and whether it is asked
-- to be undone: each run once, for one that has passed its pivot says no every time.
with n as materialized (select coalesce(%(now)s, clock_timestamp()) as now)
select s.name, s.fingerprint, s.revision, s.next_at, s.note, n.now,
    extract(epoch from n.now - s.look_at)::float8 as late, r.id as open,
    coalesce(s.overlap = 'cancel' and (r.cancel_requested or exists (
        select from sagas_outbox o where o.saga_id = r.id and o.kind = 'cancel') or exists (
        select from sagas_log l where l.saga_id = r.id and l.kind = 'cancel_requested'
            and l.data->>'actor' = 'schedule:' || s.name)), false) as cancelled
from n, sagas_schedule s
left join lateral (
    select id, cancel_requested, finished_at from sagas_saga
    where name = s.saga and key = s.last_key order by run desc limit 1) r on r.finished_at is null
where s.name = any(%(names)s::text[]) and not s.paused and s.look_at <= n.now
order by s.look_at, s.name
