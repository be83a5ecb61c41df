-- A saga as the bodies of its children may look at it.
select s.name, s.version, s.key, s.status, s.seq, s.steps::text as steps, s.cancel_requested, s.parked_from, s.error,
    s.paused, s.failing, extract(epoch from s.deadline)::float8 as deadline, h.seqs as history_seqs, h.entries as history
from sagas_saga s
cross join lateral (
    select array_agg(l.seq order by l.seq) as seqs, array_agg(
        case when pg_column_size(l.data) <= %(large)s::int then l.data::text end order by l.seq) as entries
    from sagas_log l
    where l.saga_id = s.id and (l.seq = 0 or l.kind in ('step_done', 'signalled'))
) h
where s.id = %(id)s
