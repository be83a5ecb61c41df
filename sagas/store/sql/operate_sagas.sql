-- Sagas, newest first (ids are in order of time; children and next runs stand beside what they came of), for a person to
-- look at. What all of the wanted statuses have in common is said besides, for the partial indexes.
select id, name, version, key, status, seq, steps, cancel_requested, parked_from, error, created_at, paused, failing, deadline,
    definition
from sagas_saga
where (%(statuses)s::text[] is null or status = any(%(statuses)s::text[]))
  and (%(name)s::text is null or name = %(name)s::text)
  and (%(version)s::integer is null or version = %(version)s::integer)
  and (not %(unfinished)s::boolean or finished_at is null)
  and (not %(finished)s::boolean or finished_at is not null)
  and (not %(parked)s::boolean or parked_from is not null)
  and (not %(waiting)s::boolean
       or finished_at is null and jsonb_path_exists(steps, '$.*.status ? (@ == "waiting")'))
order by id desc
limit %(limit)s
