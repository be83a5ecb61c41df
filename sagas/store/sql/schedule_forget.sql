delete from sagas_schedule where name = %(name)s
