-- Delete messages that were sent and have been kept long enough, some at a time.
delete from sagas_message m
using (
    select c.id from sagas_message c
    where c.state = 'sent'
      and c.finished_at < coalesce(%(now)s::timestamptz, clock_timestamp()) - make_interval(secs => %(keep)s::float8)
    order by c.finished_at
    limit %(most)s
    for update skip locked
) old
where m.id = old.id
