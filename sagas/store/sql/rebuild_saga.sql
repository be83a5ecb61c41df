-- Make one saga row what its log says. `created_at` and the like come from the log's own times.
insert into sagas_saga (
    id, name, version, key, run, status, seq, input_hash, steps, cancel_requested, parked_from, error,
    subject_type, subject_id, parent, parent_step, headers, paused, failing, deadline, definition, priority, ordering_key,
    created_at, updated_at, finished_at)
select %(id)s, %(name)s, %(version)s, %(key)s, %(run)s, %(status)s, %(seq)s, %(input_hash)s, %(steps)s::text::jsonb,
    %(cancel_requested)s, %(parked_from)s::text, %(error)s, %(subject_type)s::text, %(subject_id)s::text,
    %(parent)s::uuid, %(parent_step)s::text, %(headers)s::text::jsonb, %(paused)s, %(failing)s, to_timestamp(%(deadline)s::float8), %(definition)s,
    %(priority)s, %(ordering_key)s::text, min(l.at), max(l.at), case when %(finished)s then max(l.at) end
from sagas_log l where l.saga_id = %(id)s
on conflict (id) do update set
    name = excluded.name, version = excluded.version, key = excluded.key, run = excluded.run,
    status = excluded.status, seq = excluded.seq, input_hash = excluded.input_hash, steps = excluded.steps,
    cancel_requested = excluded.cancel_requested, parked_from = excluded.parked_from, error = excluded.error,
    subject_type = excluded.subject_type, subject_id = excluded.subject_id,
    parent = excluded.parent, parent_step = excluded.parent_step, headers = excluded.headers,
    paused = excluded.paused, failing = excluded.failing, deadline = excluded.deadline, definition = excluded.definition,
    priority = excluded.priority, ordering_key = excluded.ordering_key,
    updated_at = excluded.updated_at, finished_at = excluded.finished_at
