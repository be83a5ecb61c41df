-- Add to what was counted so far, in one order for all, so that two workers never wait for each other in a circle.
insert into sagas_tally as t (name, step, what, count, seconds)
select * from unnest(%(names)s::text[], %(steps)s::text[], %(whats)s::text[], %(counts)s::bigint[], %(seconds)s::float8[])
order by 1, 2, 3
on conflict (name, step, what) do update set count = t.count + excluded.count, seconds = t.seconds + excluded.seconds
