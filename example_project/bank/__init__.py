"""A small bank: one process, its own store, spoken to over HTTP only.

It is the system that shares no transaction with the shop, so it is where outcomes get lost. It honours idempotency
keys for a set time, can be asked what became of a key, and can be scripted to refuse, fail, dawdle, hang, lose replies
and forget. Run it with `python -m example_project.bank --port 0 --port-file bank.port`.

    http.py       requests and answers as JSON
    service.py    what one charge or refund goes through: arrive, suffer faults, take effect, answer
    faults.py     the script of faults: which order is struck by what, and how often
    inflight.py   what is being processed right now, numbered by arrival; holding and releasing
    ledger.py     the store (SQLite): entries, remembered answers, tombstones; exact to the cent
"""
