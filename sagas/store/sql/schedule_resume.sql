-- Ticks count from now on: what a pause has left out is not made up for.
update sagas_schedule set paused = false, actor = '', reason = '', note = '', revision = revision + 1,
    next_at = coalesce(%(now)s, clock_timestamp()), look_at = coalesce(%(now)s, clock_timestamp())
where name = %(name)s and paused
