-- Requests of sagas that were pruned in the moment they were made: nobody could ever apply them.
delete from sagas_outbox o where o.id in (
    select o.id from sagas_outbox o
    where o.saga_id is not null and o.kind <> 'step' and o.holder is null
      and o.timer_at < clock_timestamp() - interval '1 hour'
      and not exists (select from sagas_saga s where s.id = o.saga_id)
      and not exists (select from sagas_log l where l.saga_id = o.saga_id) -- else its row was lost: rebuild it
    order by o.id
    limit %(limit)s
    for update of o skip locked
)
returning o.id
