-- Renew leases. A row that a local step has locked is skipped: nobody else can take it either.
-- Returns the rows that are still held under the given token; the others are lost.
-- any(array[id]) is looked up by index also where the planner believes the outbox to be empty; "=" may read it whole.
with held as materialized (
    select h.id, h.token from unnest(%(ids)b::bigint[], %(tokens)b::bigint[]) as h (id, token)
), free as materialized (
    select o.id from sagas_outbox o join held h on o.id = any(array[h.id]) and h.token = o.token
    where o.holder = %(holder)s
    order by h.id
    for update of o skip locked
), renewed as (
    update sagas_outbox o
    set due_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(lease)s::float8)
    from free where o.id = any(array[free.id])
)
select o.id from sagas_outbox o join held h on o.id = any(array[h.id]) and h.token = o.token where o.holder = %(holder)s
