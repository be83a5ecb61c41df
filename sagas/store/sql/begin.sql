-- Begin: take rows over by (id, token) and load all that is needed to run them. Begin consumes the token,
-- so a message that is delivered twice, late, forged or beside a newer claim begins nothing.
-- any(array[id]) is looked up by index also where the planner believes the outbox to be empty; "=" may read it whole.
with wanted as materialized (
    select (w.held->>0)::bigint as id, (w.held->>1)::bigint as token from json_array_elements(%(held)s::json) as w (held)
    where (w.held->>0)::bigint between 1 and 9223372036854775807 -- always: the planner expects few, and uses the index
), mine as materialized (
    select o.id, o.kind = 'step' and (o.ordering_key is not null or (select exists (select from sagas_queue)) and exists (
            select from sagas_queue q where q.name = o.queue)) as limited
    from sagas_outbox o join wanted w on o.id = any(array[w.id]) and w.token = o.token
    where case when %(published)s then o.holder like 'relay:%%'
          else o.due_at <= coalesce(%(now)s::timestamptz, clock_timestamp()) end
    order by w.id
    for update of o skip locked
), refused as materialized ( -- their queue is full, or they are not the first in the line of their ordering key
    select r as id from sagas_refused_v1(array(select m.id from mine m where m.limited order by m.id),
        coalesce(%(now)s::timestamptz, clock_timestamp())) r
    where (select exists (select from mine m where m.limited))
), begun as (
    update sagas_outbox o
    set saga_id = case
            when o.kind = 'signal' and o.payload->>'key' is not null then ( -- the latest run
                select s.id from sagas_saga s where s.name = o.payload->>'name' and s.key = o.payload->>'key'
                order by s.run desc limit 1)
            -- the run that has gone on meanwhile from the one that it was asked of
            when o.kind in ('cancel', 'pause', 'resume') and o.payload->'ended' is null then coalesce((
                with recursive line as (
                    select s.id, s.seq, s.finished_at, 0 as further from sagas_saga s where s.id = o.saga_id
                    union all
                    select n.id, n.seq, n.finished_at, line.further + 1
                    from line join sagas_log l on l.saga_id = line.id and l.seq = line.seq
                    join sagas_saga n on n.id = (l.data->>'continued')::uuid
                    where line.finished_at is not null
                )
                select line.id from line order by line.further desc limit 1), o.saga_id)
            else o.saga_id end,
        holder = %(holder)s,
        token = o.token + 1,
        deliveries = o.deliveries + 1,
        publishes = 0, -- the broker has delivered: the next window is short again
        first_begun_at = coalesce(o.first_begun_at, %(now)s::timestamptz, clock_timestamp()),
        due_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(lease)s::float8)
    from mine where o.id = any(array[mine.id]) and mine.id not in (select r.id from refused r)
    returning o.id, o.token, o.saga_id, o.kind, o.queue, o.step, o.direction, o.deliveries, o.first_begun_at, o.payload,
        o.progress, o.ordering_key, o.timer_at
)
select b.id, b.token, b.kind, b.queue, b.step, b.direction, b.deliveries,
    extract(epoch from b.first_begun_at)::float8 as first_begun_at,
    extract(epoch from coalesce(%(now)s::timestamptz, clock_timestamp()))::float8 as now,
    b.payload::text as payload,
    b.saga_id, s.name, s.version, s.key, s.status, s.seq, s.steps::text as steps,
    s.cancel_requested, s.parked_from, s.error, s.paused, s.failing, extract(epoch from s.deadline)::float8 as deadline,
    s.definition, b.progress::text as progress, extract(epoch from b.timer_at)::float8 as asked_at,
    s.parent is not null or b.kind = 'step' and b.ordering_key is not null as tied,
    (select exists (select from sagas_pause)) and exists (select from sagas_pause p where
        (p.kind = 'queue' and p.name = b.queue)
        or (p.kind = 'definition' and p.name = s.name and p.version in (0, s.version))) as held_up,
    b.kind = 'signal' and exists (
        -- what the latest run took over from the one before had arrived before anything that is still on its way
        select from sagas_outbox r where r.kind = 'signal' and r.ordering_key = b.ordering_key
          and (coalesce(r.payload->'carried', '0'), b.id) > (coalesce(b.payload->'carried', '0'), r.id)
    ) or b.kind in ('pause', 'resume') and exists (
        -- the last one that was asked for has the last word; a pause that was inherited is older than all of them
        select from sagas_outbox r
        where r.saga_id = any(array[b.saga_id, former.id]) and r.kind in ('pause', 'resume')
          and (r.payload->'inherited' is null, r.id) < (b.payload->'inherited' is null, b.id)
    ) as early,
    h.seqs as history_seqs, h.entries as history,
    -- a request in another queue, which perhaps nobody serves, holds the work up for five minutes only
    b.kind = 'step' and (exists (
        select from sagas_outbox r
        where r.saga_id = any(array[b.saga_id, former.id]) and r.kind not in ('step', 'signal', 'children')
          and (r.queue = b.queue or
          greatest(r.due_at, r.timer_at) > coalesce(%(now)s::timestamptz, clock_timestamp()) - interval '5 minutes')
    ) or s.steps->b.step->>'status' = 'waiting' and exists (
        select from sagas_outbox r
        where r.kind = 'signal' and r.ordering_key = s.name || ' ' || s.key and (r.queue = b.queue or
          greatest(r.due_at, r.timer_at) > coalesce(%(now)s::timestamptz, clock_timestamp()) - interval '5 minutes')
    )) as asked,
    d.state as memory_state, d.response::text as memory_response, late.response::text as late_response
from begun b
left join sagas_saga s on s.id = b.saga_id
left join lateral ( -- the run that this one has gone on from: what was asked of that is on its way to this one
    select f.id from sagas_saga f join sagas_log l on l.saga_id = f.id and l.seq = f.seq
    where s.run > 1 and f.name = s.name and f.key = s.key and f.run = s.run - 1 and l.data->>'continued' is not null
    limit 1 -- looked up, and only where there can be one
) former on true
left join lateral (
    select array_agg(l.seq order by l.seq) as seqs, array_agg( -- size as it is stored: nothing is unpacked to learn it
        case when pg_column_size(l.data) <= %(large)s::int then l.data::text end order by l.seq) as entries
    from sagas_log l
    where l.saga_id = b.saga_id and (l.seq = 0 or l.kind in ('step_done', 'signalled')) and b.kind = 'step'
) h on true
left join sagas_dedupe d
    on d.key = b.saga_id::text || ':' || b.step || ':' || case b.direction when 'undo' then 'undo:0'
        else 'do:' || coalesce(s.steps->b.step->>'generation', '0') end
left join sagas_dedupe late
    on b.direction = 'undo' and late.key = b.saga_id::text || ':' || b.step || ':do:'
        || coalesce(s.steps->b.step->>'generation', '0')
order by b.id
