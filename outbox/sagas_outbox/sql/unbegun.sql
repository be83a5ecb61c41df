-- Which of the rows that this relay published nobody has begun yet.
select o.id from sagas_outbox o where o.id = any(%(ids)b::bigint[]) and o.holder = %(holder)s
