-- Delete rows that will never be of use, where they are still as the caller knows them.
delete from sagas_outbox o
using unnest(%(ids)b::bigint[], %(tokens)b::bigint[]) as h (id, token)
where o.id = h.id and o.token = h.token
