-- Relays and workers that have said they are there, those that have gone without a word, and those that are there and get
-- nothing done.
select split_part(holder, ':', 1) as kind,
    count(*) filter (where seen_at > clock_timestamp() - interval '30 seconds') as alive,
    count(*) filter (where seen_at <= clock_timestamp() - interval '30 seconds') as missing,
    count(*) filter (where seen_at > clock_timestamp() - interval '30 seconds' and trouble_since is not null) as failing,
    extract(epoch from clock_timestamp() - min(trouble_since) filter (
        where seen_at > clock_timestamp() - interval '30 seconds'))::float8 as failing_seconds,
    min(trouble) filter (where seen_at > clock_timestamp() - interval '30 seconds' and trouble <> '') as trouble
from sagas_process
group by 1
order by 1
