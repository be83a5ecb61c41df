delete from sagas_pause where kind = %(kind)s and name = %(name)s and version = %(version)s
