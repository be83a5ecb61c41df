-- What was counted in each minute of the last hour; minute 59 is the one that is on.
select split_part(t.what, ':', 2) as what, (59 - (clock.minute - t.seconds / 60))::int as minute, t.count
from sagas_tally t, (select floor(extract(epoch from clock_timestamp()) / 60)::bigint as minute) clock
where t.name = '' and t.step = '' and t.what like 'minute:%%' and t.seconds / 60 > clock.minute - 60
order by 1, 2
