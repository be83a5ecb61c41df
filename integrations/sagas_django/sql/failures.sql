-- What went wrong with the newest sagas that are parked, and with those that ended otherwise than hoped in the last day:
-- the first part of a statement. Numbers and ids in an error are left out, so that the same error is one fingerprint.
with failed as materialized (
    (select s.id, s.name, s.error, true as parked, s.updated_at as at from sagas_saga s
        where s.parked_from is not null order by s.id desc limit %(most)s)
    union all
    (select s.id, s.name, s.error, false, s.finished_at from sagas_saga s
        where s.finished_at >= clock_timestamp() - interval '1 day' and s.finished_at is not null
          and s.status <> %(good)s
        order by s.finished_at desc limit %(most_ended)s)
), told as materialized (
    select f.id, f.name, f.parked, f.at, coalesce(e.step, '') as step,
        left(concat_ws('; ', nullif(f.error, ''), -- which may have told the message already
            case when strpos(f.error, e.data->'error'->>'message') = 0
                then (e.data->'error'->>'type') || ': ' || (e.data->'error'->>'message') end), 500) as text
    from failed f left join lateral (
        select l.step, l.data from sagas_log l
        where l.saga_id = f.id and l.step is not null and (l.data ? 'error' or l.kind = %(kind)s)
        order by l.data ? 'error' desc, l.seq desc limit 1
    ) e on true
), printed as materialized (
    select t.*, regexp_replace(regexp_replace(t.text,
        '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}', '#', 'g'),
        '0x[0-9a-fA-F]+|[0-9a-fA-F]*[0-9]+[0-9a-fA-F]*', '#', 'g') as fingerprint
    from told t
), grouped as (
    select p.*, md5(p.name || chr(31) || p.step || chr(31) || p.fingerprint) as token from printed p
)
