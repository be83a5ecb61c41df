insert into sagas_outbox (saga_id, kind, step, direction, queue, priority, lane, ordering_key, place, due_at, failures,
    first_begun_at)
select %(saga_id)s, 'step', %(step)s, %(direction)s, %(queue)s, s.priority + %(priority)s, hashtext(s.name), s.ordering_key,
    case when s.ordering_key is not null then extract(epoch from s.created_at) * 1000000 end,
    clock_timestamp() + make_interval(secs => %(delay)s::float8), %(failures)s, to_timestamp(%(first_begun)s::float8)
from sagas_saga s where s.id = %(saga_id)s
