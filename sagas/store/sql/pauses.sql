-- What is held up, oldest first.
select kind, name, version, actor, reason, at from sagas_pause order by at, kind, name, version
