"""Twenty processes start one saga under one key; the first of them has it in a transaction, and rolls back.

Run as a program; `DATABASE_URL` names the database. Prints what each process came to, as JSON.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

PROCESSES = 20


def main() -> None:
    """Fork before anything is connected, so that every process has a connection of its own."""
    import django

    django.setup()
    began, roll_back = os.pipe(), os.pipe()
    answers = [os.pipe() for _ in range(PROCESSES)]
    for number, (_, answer) in enumerate(answers):
        if not os.fork():
            try:
                os.write(answer, json.dumps(child(number, began, roll_back)).encode())
            finally:
                os._exit(0)
        if number == 0:
            os.read(began[0], 1)
    wait_until_blocked(PROCESSES - 1)
    os.write(roll_back[1], b".")
    for _ in range(PROCESSES):
        os.wait()
    print(json.dumps([json.loads(os.read(end, 10_000)) for end, _ in answers]))


def child(number: int, began: tuple[int, int], roll_back: tuple[int, int]) -> Any:
    """Start the saga; the first process waits until all others wait for it, then rolls back."""
    from django.db import transaction

    from tests.shop.models import Order
    from tests.shop.sagas import Ordered, Trip

    with transaction.atomic():
        Order.objects.create(title=str(number))
        run = Trip.start(Ordered(7), key="one")
        if number == 0:
            os.write(began[1], b".")
            os.read(roll_back[0], 1)
            transaction.set_rollback(True)
    return {"process": os.getpid(), "created": run.created, "id": str(run.id)}


def wait_until_blocked(many: int) -> None:
    """Wait until so many connections wait for a lock of another transaction."""
    from django.db import connection

    deadline = time.monotonic() + 30
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            )
            if cursor.fetchone()[0] >= many:
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"fewer than {many} processes wait")
        time.sleep(0.01)


if __name__ == "__main__":
    main()
