-- Give up a signal whose saga never came, and forget that it was sent: the same one sent again counts.
with gone as (
    delete from sagas_outbox where id = %(id)s and token = %(token)s returning payload
)
delete from sagas_signal g using gone
where g.name = gone.payload->>'name' and g.key = gone.payload->>'key' and g.step = gone.payload->>'step'
  and g.dedupe_id = gone.payload->>'dedupe_id'
