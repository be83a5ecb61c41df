-- How late the schedule is that should have ticked first, also where it is looked at again and again and its saga cannot be
-- started. A tick that waits for the run before it is late from the end of that run on.
select coalesce(max(greatest(extract(epoch from clock_timestamp() - case
    when r.id is not null and r.finished_at is null then s.look_at else greatest(s.next_at, r.finished_at) end),
    0)), 0)::float8 as late_seconds
from sagas_schedule s
left join lateral (
    select id, finished_at from sagas_saga
    where s.overlap in ('queue', 'cancel') and name = s.saga and key = s.last_key order by run desc limit 1) r on true
where not s.paused
