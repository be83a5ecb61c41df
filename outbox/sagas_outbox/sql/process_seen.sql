-- A relay or worker is there; those that have not said so for a day are forgotten.
with clock as materialized (
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as now
), gone as (
    delete from sagas_process where holder in (
        select p.holder from sagas_process p cross join clock where p.seen_at < clock.now - interval '1 day'
        for update of p skip locked)
)
insert into sagas_process as p (holder, host, pid, queues, version, started_at, seen_at, trouble, trouble_since)
select %(holder)s::text, %(host)s::text, %(pid)s::integer, %(queues)s::text, %(version)s::text, clock.now, clock.now,
    %(trouble)s::text, case when %(trouble)s::text <> '' then clock.now end
from clock
on conflict (holder) do update set seen_at = excluded.seen_at, trouble = excluded.trouble,
    trouble_since = case when excluded.trouble <> '' then coalesce(p.trouble_since, excluded.trouble_since) end
