-- Looks at a schedule again later, because something about it went wrong.
update sagas_schedule set note = %(note)s, revision = revision + 1,
    look_at = coalesce(%(now)s, clock_timestamp()) + make_interval(secs => %(delay)s)
where name = %(name)s and revision = %(revision)s
