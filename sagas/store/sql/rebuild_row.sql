insert into sagas_outbox (saga_id, kind, step, direction, queue, due_at, failures, first_begun_at)
values (%(saga_id)s, 'step', %(step)s, %(direction)s, %(queue)s,
    clock_timestamp() + make_interval(secs => %(delay)s::float8), %(failures)s, to_timestamp(%(first_begun)s::float8))
