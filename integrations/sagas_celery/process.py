"""The saga worker of a Celery process: made after the fork, told about a shutdown, ended with the process."""

from __future__ import annotations

import logging
import mmap
import os
import threading
from collections.abc import Callable
from typing import Any

from billiard import current_process
from celery import Celery, signals

from sagas import ports
from sagas.embedded import end_process
from sagas.errors import SagaError
from sagas.worker import Worker
from sagas_outbox.claims import Held
from sagas_outbox.link import Link

log = logging.getLogger("sagas.worker")

_draining = mmap.mmap(-1, 1)  # shared with prefork children: nothing else tells them in time
_prefork_child = False
_queues: list[str] = []  # that this Celery worker consumes; children inherit it
_one_begins = threading.Lock()  # pools of threads share a worker, and a connection serves one thread at a time
_workers: dict[tuple[int, str], tuple[Worker, Link]] = {}


def run(store: str, held: list[Held]) -> None:
    """Begin rows of a message and work through them.

    Raises:
        sagas.errors.ConfigurationError: this process has no such store.
    """
    with _one_begins:
        worker, link = _worker(store)
    worker.wait_for_room()  # a worker that is full takes nothing more on
    with _one_begins, link.use() as connection:
        job = worker.take_up(worker.begin(connection, held, published=True))
        worker.pace.save_if_due(connection)
    worker.run(job)


def _worker(name: str) -> tuple[Worker, Link]:
    key = (os.getpid(), name)
    if key not in _workers:
        store = ports.store(name)
        worker = Worker(
            store,
            end_process=end_process if _prefork_child else _report,
            ends_overruns=_prefork_child,
            goes_on=lambda here, there: here == there and not draining(),
            draining=draining,
            queues=_queues,
        )
        worker.start()
        _workers[key] = worker, Link(store.connect)
    return _workers[key]


def draining() -> bool:
    """Whether this Celery worker is shutting down."""
    return _draining[0] != 0


def _report(reason: str) -> None:
    log.critical("%s; this pool runs bodies in threads, which cannot be ended: stop this worker", reason)


@signals.worker_init.connect
def _begin(**_: Any) -> None:
    _draining[0] = 0


@signals.celeryd_after_setup.connect
def _note_queues(instance: Any = None, **_: Any) -> None:
    """Which queues this worker consumes, for people to see."""
    amqp = getattr(getattr(instance, "app", None), "amqp", None)
    _queues[:] = [] if amqp is None else sorted(amqp.queues.consume_from)


def load_at_start(name: str, load: Callable[[], object]) -> None:
    """Have a worker import what defines the sagas of a store when it starts, and not start where that fails.

    Args:
        name: the store's.
        load: imports the definitions.
    """

    def loading(**_: Any) -> None:
        try:
            load()
        except Exception as problem:
            log.exception("the definitions of store %r cannot be loaded", name)
            raise SystemExit(f"This worker does not start: sagas of {name!r} cannot be loaded: {problem}") from problem

    signals.worker_init.connect(loading, weak=False, dispatch_uid=f"sagas: load {name}")


def check_at_start(name: str, check: Callable[[Celery | None], object]) -> None:
    """Have a worker look at something when it starts, after what was asked for before.

    Args:
        name: what it is about, for people.
        check: is given the worker's app; raises a `SagaError` where the worker had better not start. Celery logs any
            other exception, and goes on.
    """

    def checking(sender: Any = None, **_: Any) -> None:
        try:
            check(getattr(sender, "app", None))
        except SagaError as problem:
            raise SystemExit(f"This worker does not start, because of {name}:\n{problem}") from problem

    signals.worker_init.connect(checking, weak=False, dispatch_uid=f"sagas: check {name}")


@signals.worker_process_init.connect
def _born(**_: Any) -> None:
    global _prefork_child
    _prefork_child = current_process().name != "MainProcess"  # the solo pool sends this signal too


@signals.worker_shutting_down.connect
def _drain(**_: Any) -> None:
    _draining[0] = 1


@signals.worker_process_shutdown.connect
@signals.worker_shutdown.connect
def _end(**_: Any) -> None:
    for (pid, _name), (worker, link) in list(_workers.items()):
        if pid == os.getpid():
            worker.stop()
            link.close()
    _workers.clear()
