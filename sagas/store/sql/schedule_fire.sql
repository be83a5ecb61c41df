-- Starts the sagas of ticks, and moves their schedule on, if nobody else has since it was looked at. No row: somebody has.
with moved as (
    update sagas_schedule set
        revision = revision + 1, note = %(note)s,
        next_at = coalesce(%(next_at)s, next_at), look_at = coalesce(%(look_at)s, look_at),
        last_at = coalesce(%(last_at)s, last_at), last_key = coalesce(%(last_key)s, last_key),
        last_started_at = case when %(last_key)s::text is null then last_started_at
            else coalesce(%(now)s, clock_timestamp()) end
    where name = %(name)s and revision = %(revision)s
    returning name)
select (select coalesce(json_agg(sagas_start_v1(r.value)), '[]'::json)
        from json_array_elements(%(starts)s::json) r where m.name is not null)
from moved m
