-- A saga that turned back in a history that was lost is asked to turn back again, in the transaction of what it is told.
select sagas_request_v1(%(request)s::text::json)
