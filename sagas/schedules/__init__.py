"""Schedules: sagas that start by the clock, exactly once per tick however many relays there are.

`declaration` is what users write, `timing` when ticks are, `policy` what becomes of late ones (all three without I/O
but for time zones), `table` the rows, `firing` what is done at a tick, `scheduler` the thread that does it.
"""
