insert into sagas_pause (kind, name, version, actor, reason)
values (%(kind)s, %(name)s, %(version)s, %(actor)s, %(reason)s)
on conflict (kind, name, version) do update set actor = excluded.actor, reason = excluded.reason
