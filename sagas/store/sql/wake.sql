-- Make due what a pause of a queue or a definition has put off, a batch at a time in order of id. A backoff or a wait
-- that is looked at early by this is put back as it was.
with put_off as materialized (
    select o.id from sagas_outbox o
    where o.id > %(last)s and o.kind in ('step', 'children') and o.holder is null and o.due_at > clock_timestamp()
      and o.due_at < clock_timestamp() + interval '10 minutes'
      and case when %(kind)s = 'queue' then o.queue = %(name)s else exists (
            select from sagas_saga s
            where s.id = o.saga_id and s.name = %(name)s and %(version)s::integer in (0, s.version)) end
    order by o.id
    limit %(limit)s
    for update skip locked
)
update sagas_outbox o set due_at = clock_timestamp() from put_off where o.id = put_off.id
returning o.id
