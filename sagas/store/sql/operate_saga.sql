-- One saga, for a person to look at.
select id, name, version, key, status, seq, steps, cancel_requested, parked_from, error, created_at, paused, failing, deadline,
    definition
from sagas_saga
where id = %(saga)s
