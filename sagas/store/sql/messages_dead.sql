-- Messages that were given up, the newest first.
select m.message_id, m.destination, m.ordering_key, m.failures, m.finished_at, m.error
from sagas_message m
where m.state = 'dead'
order by m.finished_at desc
limit %(most)s
