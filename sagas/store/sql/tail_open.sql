-- The newest sagas that have not ended, and the newest of all, with how far their logs go.
(select id, name, key, seq from sagas_saga
 where finished_at is null and (%(name)s::text is null or name = %(name)s::text)
 order by id desc limit %(limit)s)
union
(select id, name, key, seq from sagas_saga
 where %(name)s::text is null or name = %(name)s::text
 order by id desc limit %(limit)s)
