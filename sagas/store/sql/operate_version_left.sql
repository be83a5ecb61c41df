-- How many sagas of one version have not ended, and whether there is one at all.
select
    (select count(*) from sagas_saga
     where finished_at is null and name = %(name)s::text and version = %(version)s::integer) as unfinished,
    exists (select from sagas_saga where name = %(name)s::text and version = %(version)s::integer) as known
