-- The relays and workers that have said they are there: when they began, and how long ago they last said so.
select holder, host, pid, queues, version, started_at, seen_at,
    extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()) - seen_at)::float8 as silent_seconds
from sagas_process
order by split_part(holder, ':', 1), host, pid, holder
limit %(limit)s
