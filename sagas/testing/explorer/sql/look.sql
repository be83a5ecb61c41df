-- Make the row due that is due first, whoever holds it: its backoff is over, or the lease of a worker that died.
-- With it comes what the log of the story's saga says since the last look.
with first as (
    select o.id, extract(epoch from o.due_at)::float8 as due from sagas_outbox o
    where o.saga_id is not null and o.saga_id <> all(%(without)s::uuid[])
      and o.id <> all(%(held)s::bigint[])
    order by o.step is not distinct from %(first)s::text and o.direction = 'do' desc, o.due_at, o.id
    limit 1
), due as (
    update sagas_outbox o set due_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    from first where o.id = first.id
    returning o.id, o.token, o.saga_id, o.kind, o.step, o.direction, first.due
), fresh as (
    select json_agg(json_build_array(l.seq, l.kind, l.step, l.attempt, l.data::text) order by l.seq)::text as lines
    from sagas_log l where l.saga_id = %(id)s and l.seq >= %(seq)s
)
select due.*, fresh.lines from fresh left join due on true
