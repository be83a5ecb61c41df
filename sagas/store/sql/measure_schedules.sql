-- How late the schedule is that should have been looked at first; one that waits for its last run is looked at later.
select coalesce(max(greatest(extract(epoch from clock_timestamp() - s.look_at), 0)), 0)::float8 as late_seconds
from sagas_schedule s
where not s.paused
