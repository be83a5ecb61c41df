-- Add to what was counted in this minute. There is a row for each minute of an hour, which is used again an hour later;
-- `seconds` says, as epoch seconds, which minute it is of. All in one order, so that nobody waits in a circle.
insert into sagas_tally as t (name, step, what, count, seconds)
select '', '', 'minute:' || w.what || ':' || clock.minute %% 60, w.count, clock.minute * 60
from unnest(%(whats)s::text[], %(counts)s::bigint[]) as w (what, count),
    (select floor(extract(epoch from clock_timestamp()) / 60)::bigint as minute) clock
order by 3
on conflict (name, step, what) do update set seconds = excluded.seconds,
    count = excluded.count + case when t.seconds = excluded.seconds then t.count else 0 end
