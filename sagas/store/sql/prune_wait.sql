-- Wait until nobody else prunes: see prune.sql.
select pg_advisory_xact_lock(7236, hashtext('sagas.prune' || current_schema()))
