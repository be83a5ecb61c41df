-- What the logs say was done or undone outside, in a span of time, of some steps. What an operator says is their word.
-- Logs are not found by time, sagas are read whole: of those to which nothing has happened since, no log is.
select s.id, s.name, s.key, l.step, l.kind, l.at
from sagas_log l join sagas_saga s on s.id = l.saga_id
join unnest(%(names)s::text[], %(steps)s::text[], %(kinds)s::text[]) as w (name, step, kind)
    on w.name = s.name and w.step = l.step and w.kind = l.kind
where s.updated_at >= %(since)s::timestamptz - interval '1 hour'
  and l.at >= %(since)s::timestamptz and l.at < coalesce(%(until)s::timestamptz, clock_timestamp())
  and coalesce(l.data->>'source', 'body') <> 'operator'
order by l.at, s.id
