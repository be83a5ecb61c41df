-- How many sagas are old enough to be pruned, some of which may have to stay.
select count(*) from sagas_saga
where finished_at is not null
  and finished_at < coalesce(%(now)s::timestamptz, statement_timestamp()) - make_interval(secs => %(age)s::float8)
  and (%(name)s::text is null or name = %(name)s::text)
