-- Begin: take rows over by (id, token) and load all that is needed to run them. Begin consumes the token,
-- so a message that is delivered twice, late, forged or beside a newer claim begins nothing.
with wanted as materialized (
    select w.id, w.token from unnest(%(ids)b::bigint[], %(tokens)b::bigint[]) as w (id, token)
), mine as materialized (
    select o.id from sagas_outbox o join wanted w on w.id = o.id and w.token = o.token
    where case when %(published)s then o.holder like 'relay:%%'
          else o.due_at <= coalesce(%(now)s::timestamptz, clock_timestamp()) end
    order by o.id
    for update of o skip locked
), begun as (
    update sagas_outbox o
    set holder = %(holder)s,
        token = o.token + 1,
        deliveries = o.deliveries + 1,
        publishes = 0, -- the broker has delivered: the next window is short again
        first_begun_at = coalesce(o.first_begun_at, %(now)s::timestamptz, clock_timestamp()),
        due_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(lease)s::float8)
    from mine where o.id = mine.id
    returning o.id, o.token, o.saga_id, o.kind, o.queue, o.step, o.direction, o.deliveries, o.first_begun_at, o.payload
)
select b.id, b.token, b.kind, b.queue, b.step, b.direction, b.deliveries,
    extract(epoch from b.first_begun_at)::float8 as first_begun_at,
    extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()))::float8 as now,
    b.payload::text as payload,
    b.saga_id, s.name, s.version, s.key, s.status, s.seq, s.steps::text as steps,
    s.cancel_requested, s.parked_from, s.error,
    h.seqs as history_seqs, h.entries as history,
    b.kind = 'step' and exists (
        select from sagas_outbox r
        where r.saga_id = b.saga_id and r.kind <> 'step'
          and greatest(r.due_at, r.timer_at) > coalesce(%(now)s::timestamptz, clock_timestamp()) - interval '5 minutes'
    ) as asked,
    d.state as memory_state, d.response::text as memory_response, late.response::text as late_response
from begun b
left join sagas_saga s on s.id = b.saga_id
left join lateral (
    select array_agg(l.seq order by l.seq) as seqs, array_agg(l.data::text order by l.seq) as entries
    from sagas_log l
    where l.saga_id = b.saga_id and (l.seq = 0 or l.kind = 'step_done') and b.kind = 'step'
) h on true
left join sagas_dedupe d
    on d.key = b.saga_id::text || ':' || b.step || ':' || case b.direction when 'undo' then 'undo' else 'do' end || ':0'
left join sagas_dedupe late
    on b.direction = 'undo' and late.key = b.saga_id::text || ':' || b.step || ':do:0'
order by b.id
