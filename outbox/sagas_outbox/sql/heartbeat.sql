-- Renew leases. A row that a local step has locked is skipped: nobody else can take it either.
-- Returns the rows that are still held under the given token; the others are lost.
with held as materialized (
    select h.id, h.token from unnest(%(ids)b::bigint[], %(tokens)b::bigint[]) as h (id, token)
), free as materialized (
    select o.id from sagas_outbox o join held h on h.id = o.id and h.token = o.token
    where o.holder = %(holder)s
    order by o.id
    for update of o skip locked
), renewed as (
    update sagas_outbox o
    set due_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(lease)s::float8)
    from free where o.id = free.id
)
select o.id from sagas_outbox o join held h on h.id = o.id and h.token = o.token where o.holder = %(holder)s
