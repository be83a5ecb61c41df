-- Puts a declaration into the table, if it is another one than is there. An older version of the saga does not take the
-- place of a newer one, unless nobody serves that. Where the ticks stay the same so does the next one; other ticks count
-- from now on.
insert into sagas_schedule as s (name, saga, version, timing, timezone, catch_up, overlap, fingerprint, next_at, look_at)
select %(name)s, %(saga)s, %(version)s, %(timing)s, %(timezone)s, %(catch_up)s, %(overlap)s, %(fingerprint)s, n.now, n.now
from (select coalesce(%(now)s, clock_timestamp()) as now) n
on conflict (name) do update set
    saga = excluded.saga, version = excluded.version, timing = excluded.timing, timezone = excluded.timezone,
    catch_up = excluded.catch_up, overlap = excluded.overlap, fingerprint = excluded.fingerprint,
    revision = s.revision + 1, declared_at = excluded.next_at, note = '',
    next_at = case when s.timing = excluded.timing and s.timezone = excluded.timezone
        then s.next_at else excluded.next_at end,
    look_at = case when s.timing = excluded.timing and s.timezone = excluded.timezone
        then s.look_at else excluded.look_at end,
    last_key = case when s.saga = excluded.saga then s.last_key end
where s.fingerprint <> excluded.fingerprint
  and (%(replaces)s or s.saga <> excluded.saga or s.version <= excluded.version)
returning s.revision = 0 as created
