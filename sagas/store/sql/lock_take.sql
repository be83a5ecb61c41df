-- A step is about to begin: all of its subjects for its saga, or none.
select sagas_lock_v1(%(request)s::json)::text
