"""`python -m sagas.testing`: a Postgres and a Redis to try things on, until Ctrl-C; their data goes with them."""

from __future__ import annotations

import signal
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import ExitStack

from sagas.testing import servers

DATABASE = "shop"


def lines(postgres: servers.Postgres, redis: servers.Redis | None, database: str) -> list[str]:
    """What to type in another terminal."""
    found = [
        f"export PGHOST={postgres.host} PGPORT={postgres.port} PGUSER=postgres PGDATABASE={database}",
        f"export DATABASE_URL={postgres.url(database)}",
    ]
    return found if redis is None else [*found, f"export REDIS_URL={redis.url}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Start, say where, and wait to be told to stop."""
    parser = ArgumentParser(prog="python -m sagas.testing", description=__doc__)
    parser.add_argument("--redis", action="store_true", help="also a Redis")
    parser.add_argument("--database", default=DATABASE, help=f"name of the empty database (default: {DATABASE})")
    given = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as stack:
        postgres = stack.enter_context(servers.postgres(private=True))
        redis = stack.enter_context(servers.redis(private=True)) if given.redis else None
        postgres.create_database(given.database)
        told = ["# Ctrl-C here ends the servers and removes their data. In another terminal:",
                *lines(postgres, redis, given.database)]  # fmt: skip
        sys.stdout.write("\n".join([*told, ""]))
        sys.stdout.flush()
        while not stop.wait(1.0):
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
