-- Seconds until the first of these schedules is to be looked at; null: never.
select extract(epoch from min(look_at) - coalesce(%(now)s, clock_timestamp()))::float8
from sagas_schedule where name = any(%(names)s::text[]) and not paused
