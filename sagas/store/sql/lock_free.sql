-- What a saga that has ended has left behind.
select sagas_unlock_v1(%(saga_id)s::uuid, coalesce(%(now)s::timestamptz, clock_timestamp()), '{}')
