-- The sagas of some outbox rows, with what each keeps of the trace it was started in.
select o.id, s.id as saga_id, s.name, s.key, s.headers->>'traceparent' as traceparent, s.headers->>'tracestate' as tracestate
from sagas_outbox o join sagas_saga s on s.id = o.saga_id
where o.id = any(%(ids)s::bigint[])
