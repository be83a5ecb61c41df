select name, step, what, count, seconds from sagas_tally order by name, step, what
