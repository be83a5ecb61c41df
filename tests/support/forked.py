"""One process opens its connections, forks four, and all of them work through steps at once.

Run as a program; `DATABASE_URL` names the database. Prints what each process used, as JSON.
"""

from __future__ import annotations

import json
import os
from contextlib import closing
from typing import Any

CHILDREN = 4
SAGAS_EACH = 17  # of three steps


def main() -> None:
    """Use everything in the parent first, then in the children, then in the parent again."""
    import django

    django.setup()
    from django.db import connections, transaction

    from sagas_django.store import DjangoStore
    from sagas_outbox.link import Link
    from tests.shop.sagas import Externals, Ordered

    with transaction.atomic():
        for number in range((CHILDREN + 2) * SAGAS_EACH):
            Externals.start(Ordered(number), key=str(number))
    connections.close_all()  # Django's own are closed after a fork by Celery
    link = Link(DjangoStore("default").connect)
    before = work(link)
    pipes = [os.pipe() for _ in range(CHILDREN)]
    ready, go = os.pipe(), os.pipe()
    for _, answer in pipes:
        if not os.fork():
            try:
                os.write(ready[1], b".")
                os.read(go[0], 1)
                os.write(answer, json.dumps(work(link)).encode())
            except BaseException as problem:
                os.write(answer, json.dumps(repr(problem)).encode())
            finally:
                os._exit(0)
    os.read(ready[0], CHILDREN)
    os.write(go[1], b"." * CHILDREN)
    children = [json.loads(os.read(end, 10_000)) for end, _ in pipes]
    for _ in pipes:
        os.wait()
    after = work(link)
    with closing(DjangoStore("default").connect()) as connection:
        row = connection.execute("select count(*) from sagas_saga where status = 'completed'").fetchone()
    assert row is not None
    print(json.dumps({"before": before, "children": children, "after": after, "completed": row[0]}))


def work(link: Any) -> int:
    """Publish and run some sagas as a Celery process does; returns the backend of the inherited link."""
    from sagas_celery import process
    from sagas_outbox import claims
    from sagas_outbox.claims import Room

    for _ in range(SAGAS_EACH):
        with link.use() as connection:
            claimed = claims.claim(
                connection, [Room("default", 1)], holder="relay:test", window=60, begun=False, now=None
            )  # fmt: skip
        process.run("default", [(row.id, row.token) for row in claimed])
    with link.use() as connection:
        return int(connection.execute("select pg_backend_pid()").fetchone()[0])


if __name__ == "__main__":
    main()
