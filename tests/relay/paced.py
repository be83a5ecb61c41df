"""Work of two speeds that nobody declared, and that change places while it runs: what messages are sized by."""

from __future__ import annotations

import time

from django.db import connection

from sagas import Saga, external_step

BRISK, SLOW = 0.0005, 0.2  # seconds a body sleeps; the shorter one takes about a millisecond with what is around it
SWAP = "swap"  # the note that makes both change places
LOOK_EVERY = 0.1  # seconds between two looks for it

_looked: dict[str, float] = {}


def swapped() -> bool:
    """Whether the two have changed places, as a note in the database says; asked about ten times a second."""
    if "found" not in _looked and time.monotonic() - _looked.get("at", 0.0) > LOOK_EVERY:
        _looked["at"] = time.monotonic()
        with connection.cursor() as cursor:
            cursor.execute("select exists (select from relay_note where key = %s)", [SWAP])
            if cursor.fetchone()[0]:
                _looked["found"] = _looked["at"]
    return "found" in _looked


class Brisk(Saga[int], name="relay.brisk", version=1):
    """One short step, long after the swap."""

    @external_step(queue="paced", pivot=True)
    def act(self) -> None:
        time.sleep(SLOW if swapped() else BRISK)


class Slow(Saga[int], name="relay.slow", version=1):
    """One long step, short after the swap."""

    @external_step(queue="paced", pivot=True)
    def act(self) -> None:
        time.sleep(BRISK if swapped() else SLOW)
