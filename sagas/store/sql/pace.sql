-- How long the bodies of each step take, as a running mean that follows a change within a few updates.
insert into sagas_pace (name, step, direction, mean)
select * from unnest(%(names)s::text[], %(steps)s::text[], %(directions)s::text[], %(means)s::float8[])
order by 1, 2, 3
on conflict (name, step, direction) do update
set mean = sagas_pace.mean * 0.3 + excluded.mean * 0.7, updated_at = clock_timestamp()
