-- What of ours is there, and fit for use.
select 'index' as kind, c.relname::text as name, i.indisvalid as fit
from pg_index i join pg_class c on c.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
where t.relname like 'sagas%%'
  and t.relnamespace = (select relnamespace from pg_class where oid = 'sagas_saga'::regclass)
union all
select 'function', p.proname::text, true from pg_proc p
where p.proname like 'sagas%%' and p.pronamespace = (select relnamespace from pg_class where oid = 'sagas_saga'::regclass)
union all
select 'trigger', t.tgname::text, t.tgenabled <> 'D' from pg_trigger t where t.tgrelid = 'sagas_log'::regclass
union all
select 'view', c.relname::text, true from pg_class c
where c.relkind = 'v' and c.relname like 'sagas%%'
  and c.relnamespace = (select relnamespace from pg_class where oid = 'sagas_saga'::regclass)
