-- Dead rows that vacuum has left, and whether it may run at all.
select s.relname::text as name, s.n_live_tup as live, s.n_dead_tup as dead,
    coalesce('autovacuum_enabled=false' = any(c.reloptions), false) as no_vacuum
from pg_stat_user_tables s join pg_class c on c.oid = s.relid
where s.relid in ('sagas_saga'::regclass, 'sagas_log'::regclass, 'sagas_outbox'::regclass, 'sagas_dedupe'::regclass)
