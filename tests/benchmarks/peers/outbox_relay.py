"""Peer: a backlog of django-celery-outbox messages, worked off by its relay to Redis.

Run by the peers' own Python: `DATABASE_URL=... REDIS_URL=... outbox_relay.py COUNT SECONDS CONCURRENCY`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.metadata import version

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ["DJANGO_SETTINGS_MODULE"] = "outbox_settings"
sys.path.insert(0, HERE)

import django  # noqa: E402

django.setup()

from django.db import connection, transaction  # noqa: E402
from django_celery_outbox import OutboxCelery  # noqa: E402

app = OutboxCelery("bench", broker=os.environ["REDIS_URL"])
app.conf.task_default_queue = "outbox-bench"


@app.task(name="bench.note")
def note(number: int) -> None: ...


def left() -> int:
    """Messages that are not published."""
    with connection.cursor() as cursor:
        cursor.execute(f"select count(*) from {TABLE}")
        return int(cursor.fetchone()[0])


def main(count: int, seconds: float, concurrency: int) -> None:
    """Publish a backlog of `count` messages and let the relay send it, as far as `seconds` allow."""
    subprocess.run([sys.executable, "-m", "django", "migrate", "-v0"], cwd=HERE, check=True)
    for first in range(0, count, 100):
        with transaction.atomic():
            for number in range(first, min(first + 100, count)):
                note.delay(number)
    assert left() == count, f"{left()} of {count} messages are in its outbox"
    command = ["celery_outbox_relay", "--batch-size", "500", "--publish-concurrency", str(concurrency)]
    relay = subprocess.Popen(
        [sys.executable, "-m", "django", *command], cwd=HERE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + seconds
        while (before := left()) == count and time.monotonic() < end:
            time.sleep(0.002)
        begun = time.monotonic()
        while (now := left()) and time.monotonic() < end:
            time.sleep(0.01)
        took = time.monotonic() - begun
    finally:
        relay.kill()
        relay.wait()
        app.control.purge()
    line = {"name": "django_celery_outbox.relay", "count": before - now, "seconds": took}
    about = {"django-celery-outbox": version("django-celery-outbox"), "concurrency": concurrency}
    print(json.dumps({**line, "per_second": (before - now) / took, **about}), flush=True)


from django_celery_outbox.models import CeleryOutbox  # noqa: E402

TABLE = CeleryOutbox._meta.db_table

if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
