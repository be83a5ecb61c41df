delete from sagas_process where holder = %(holder)s
