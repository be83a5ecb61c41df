-- Forget messages that were taken long ago, some at a time.
delete from sagas_inbox i
using (
    select c.message_id, c.handler from sagas_inbox c
    where c.at < coalesce(%(now)s::timestamptz, clock_timestamp()) - make_interval(secs => %(keep)s::float8)
    order by c.at
    limit %(most)s
    for update skip locked
) old
where i.message_id = old.message_id and i.handler = old.handler
