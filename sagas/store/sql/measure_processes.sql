-- Relays and workers that have said they are there, and those that have gone without a word.
select split_part(holder, ':', 1) as kind,
    count(*) filter (where seen_at > clock_timestamp() - interval '30 seconds') as alive,
    count(*) filter (where seen_at <= clock_timestamp() - interval '30 seconds') as missing
from sagas_process
group by 1
order by 1
