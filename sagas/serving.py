"""Running a worker or a relay as the whole of a process: it ends at SIGTERM and SIGINT, after what it began."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from sagas.embedded import Embedded
from sagas.errors import InvalidInput
from sagas.pace import shared_paces
from sagas.ports import Store
from sagas_outbox.relay import Publisher, Relay

Say = Callable[[str], object]


def work(store: Store, *, queues: Sequence[str], concurrency: int, until_idle: bool, say: Say) -> None:
    """Claim and run sagas, without a broker.

    Args:
        store: where they are.
        queues: the queues to serve; empty: all.
        concurrency: bodies at the same time.
        until_idle: end as soon as nothing is due.
        say: writes a line for people.

    Raises:
        InvalidInput: a concurrency below 1.
    """
    if concurrency < 1:
        raise InvalidInput(f"--concurrency {concurrency}: at least 1", path="concurrency")
    worker = Embedded(store, queues=queues, concurrency=concurrency)
    _until_told(worker.stop)
    say(f"worker {worker.worker.holder} serves {', '.join(queues) or 'all queues'} of {store.name!r}")
    worker.run(until_idle=until_idle)


def relay(store: Store, publisher: Publisher, *, queues: Sequence[str], say: Say) -> None:
    """Publish what is due.

    Args:
        store: where it is.
        publisher: where it goes.
        queues: the queues to serve; empty: all.
        say: writes a line for people.
    """
    relay = Relay(store.connect, publisher, store.settings, queues=queues, paces=shared_paces)
    _until_told(relay.stop)
    say(f"relay {relay.holder} serves {', '.join(queues) or 'all queues'} of {store.name!r}")
    relay.run()


def _until_told(stop: Callable[..., None]) -> None:
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
