"""A worker whose single moves a test makes itself: claim, begin, and run in one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from unittest import mock

from django.db import connection

from sagas import clock
from sagas.store.rows import Delivery
from sagas.worker import Worker
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Room


@contextmanager
def pooled() -> Iterator[None]:
    """Django's own pool, of one connection: what is closed is given back to it, and is taken out again next."""
    options = connection.settings_dict["OPTIONS"] | {"pool": {"min_size": 1, "max_size": 1, "timeout": 10.0}}
    connection.close()
    with mock.patch.dict(connection.settings_dict, OPTIONS=options, CONN_MAX_AGE=0):
        try:
            yield
        finally:
            connection.close()
            connection.close_pool()


@contextmanager
def one_worker(using: str = "default", *, goes_on: bool = False) -> Iterator[Worker]:
    """A worker without a heartbeat of its own.

    Args:
        using: the database alias.
        goes_on: whether it continues with the next step at once.
    """
    worker = Worker(
        DjangoStore(using), end_process=lambda reason: None, ends_overruns=False, goes_on=lambda *_: goes_on,
        draining=lambda: False,
    )  # fmt: skip
    try:
        yield worker
    finally:
        worker.stop()


@contextmanager
def living_worker(
    settings: Any,
    *,
    store: DjangoStore | None = None,
    end_process: Callable[[str], None] | None = None,
    ends: bool = False,
    **numbers: float,
) -> Iterator[Worker]:
    """A worker whose heart beats.

    Args:
        settings: those of Django, to put the numbers into.
        store: where its sagas are; None: the default alias.
        end_process: what ends it; None: it must not be ended.
        ends: whether a body that takes too long is a reason.
        numbers: settings of sagas.
    """
    settings.SAGAS = {"WAKE": False, **{name.upper(): value for name, value in numbers.items()}}
    ended: list[str] = []
    worker = Worker(
        store or DjangoStore("default"), end_process=end_process or ended.append, ends_overruns=ends,
        goes_on=lambda *_: False, draining=lambda: False,
    )  # fmt: skip
    worker.start()
    try:
        yield worker
        assert ended == []
    finally:
        worker.stop()


def begin_due(worker: Worker) -> list[Delivery]:
    """Lock and begin everything that is due, as an embedded worker does."""
    queues = ("default", "left", "right")
    with closing(worker.store.connect()) as connection, connection.transaction():
        due = claims.lock_due(connection, [Room(queue, 1000) for queue in queues], begun=True, now=clock.now())
        return worker.begin(connection, [held for held, _ in due], published=False)


def run_batch(worker: Worker, begun: list[Delivery]) -> None:
    """Run begun rows in one batch, as one message would be."""
    worker.run(worker.take_up(begun))


def run_together(using: str = "default", *, goes_on: bool = False) -> int:
    """Run everything that is due in one batch; returns how many rows that were."""
    with one_worker(using, goes_on=goes_on) as worker:
        begun = begin_due(worker)
        run_batch(worker, begun)
        return len(begun)
