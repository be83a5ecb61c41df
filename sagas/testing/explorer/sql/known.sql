-- The sagas that are there before the first story.
select s.id from sagas_saga s
