-- The sagas that have a log, a batch at a time.
select distinct on (saga_id) saga_id from sagas_log
where saga_id > %(after)s and (%(ids)s::uuid[] is null or saga_id = any(%(ids)s::uuid[]))
order by saga_id
limit %(limit)s
