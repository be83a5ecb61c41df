-- Open sagas that were committed before a moment. Their ids tell when they were made (version 7; 8: of what they came of),
-- whatever the clock that a test has moved says. Rows of the transaction that is open here are the test's own, however old.
with snapshot as (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 2147483648 as beyond)
select distinct s.id, s.name, s.key
from sagas_outbox o
join sagas_saga s on s.id = o.saga_id
cross join snapshot
where case
        when substr(s.id::text, 15, 1) in ('7', '8') then s.id < %(id)s::uuid
        else s.created_at < to_timestamp(%(began)s)
    end
    and pg_xact_status((beyond - (beyond - o.xmin::text::bigint) %% 4294967296)::text::xid8) is distinct from 'in progress'
order by s.id
