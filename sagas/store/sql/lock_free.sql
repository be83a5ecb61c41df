-- What a saga that has ended has left behind; who waits for it is due.
with freed as materialized (
    select u.id, at.now from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) at
    cross join lateral sagas_unlock_v1(%(saga_id)s::uuid, at.now, '{}') as u (id)
), woken as (
    update sagas_outbox o set due_at = freed.now from freed where o.id = any(array[freed.id])
)
select count(*) from freed
