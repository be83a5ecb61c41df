-- What is in doubt, written where the saga still is what the decision was made from.
with moved as (
    update sagas_saga set seq = %(new_seq)s, steps = %(steps)s::text::jsonb, updated_at = clock_timestamp()
    where id = %(id)s and seq = %(seq)s
    returning id
)
insert into sagas_log (saga_id, seq, kind, step, data)
select moved.id, e.seq, e.kind, e.step, e.data::jsonb
from moved cross join unnest(%(seqs)s::int[], %(kinds)s::text[], %(steps_of)s::text[], %(data)s::text[])
    as e (seq, kind, step, data)
returning saga_id
