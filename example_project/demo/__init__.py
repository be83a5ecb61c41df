"""`make demo`: 200 orders, a bank that misbehaves, and three blows that a shop should survive.

Run it with `python -m example_project.demo`; it takes `--orders` and `--seed`.

    settings.py   the shop's settings with shorter waits
    plan.py       which orders are placed, what happens to each, and how it must end
    stage.py      Postgres, Redis, bank, relay and workers, each a process of its own, gone at the end
    shopfront.py  the shop's side: goods, orders, its own books
    database.py   what the saga tables say
    blows.py      the three faults: each says what it hit, or raises `Missed`
    show.py       the demo from the first order to the end of the last saga
    summary.py    what came of it, and whether that is what was promised
    terminal.py   what is said, and how Ctrl-C ends it
    up.py         `make demo-up`: the same shop left running, to look at and to operate
"""
