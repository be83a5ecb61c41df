update sagas_schedule set paused = true, actor = %(actor)s, reason = %(reason)s, revision = revision + 1
where name = %(name)s
