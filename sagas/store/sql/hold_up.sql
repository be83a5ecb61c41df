-- Put work off that is paused, like a row that is handed back. Its saga is locked for it: a resume that is recorded at
-- the same time either came first, and is seen here, or comes after and finds a row that nobody holds. Where another
-- has the saga locked, what it writes is not known yet: the row comes again soon. A pause of a queue or a definition is
-- locked as well: who ends it wakes what it has put off, and must not overlook what is put off at the same time.
with given as materialized (
    select h.id, h.token from unnest(%(ids)b::bigint[], %(tokens)b::bigint[]) as h (id, token)
), pauses as materialized (
    select p.kind, p.name, p.version from sagas_pause p for share
), looked as materialized (
    select o.id, s.paused or exists (select from pauses p where
            (p.kind = 'queue' and p.name = o.queue)
            or (p.kind = 'definition' and p.name = s.name and p.version in (0, s.version))) as paused
    from given g join sagas_outbox o on o.id = g.id and o.token = g.token join sagas_saga s on s.id = o.saga_id
    order by o.id
    for update of o, s skip locked
), unspent as materialized ( -- their places in queues with limits
    select sagas_unspent_v1(array(select g.id from given g join sagas_outbox o on o.id = g.id and o.token = g.token))
        as rows
    where (select exists (select from sagas_slot))
)
update sagas_outbox o
set holder = null,
    token = o.token + 1,
    deliveries = greatest(o.deliveries - 1, 0),
    first_begun_at = case when o.deliveries > 1 then o.first_begun_at end,
    publishes = 0,
    due_at = coalesce(%(now)s::timestamptz, clock_timestamp())
        + make_interval(secs => case when l.paused then %(delay)s::float8 else %(soon)s::float8 end)
from given g left join looked l on l.id = g.id left join unspent on true
where o.id = g.id and o.token = g.token
