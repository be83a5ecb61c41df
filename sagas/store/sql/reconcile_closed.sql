-- No attempt of this step may begin any more; what is known of one stays.
insert into sagas_dedupe (key, saga_id, state) values (%(key)s, %(saga_id)s, 'closed')
on conflict (key) do update set state = 'closed' where sagas_dedupe.response is null
