"""Running a worker or a relay as the whole of a process: it ends at SIGTERM and SIGINT, after what it began."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from sagas.embedded import Embedded
from sagas.errors import InvalidInput
from sagas.pace import shared_paces
from sagas.ports import Store
from sagas.registry import registry
from sagas.retention import pruning
from sagas.schedules.scheduler import Scheduler, scheduling
from sagas.tracing_relay import PublishSpans
from sagas_outbox.messenger import Messenger
from sagas_outbox.relay import Publisher, Relay

Say = Callable[[str], object]


def work(store: Store, *, queues: Sequence[str], concurrency: int, until_idle: bool, say: Say) -> None:
    """Claim and run sagas, without a broker.

    Args:
        store: where they are.
        queues: the queues to serve; empty: all.
        concurrency: bodies at the same time.
        until_idle: end as soon as nothing is due; backoffs, timers and signals are not waited for.
        say: writes a line for people.

    Raises:
        InvalidInput: a concurrency below 1.
    """
    if concurrency < 1:
        raise InvalidInput(f"--concurrency {concurrency}: at least 1", path="concurrency")
    worker = Embedded(store, queues=queues, concurrency=concurrency)
    _until_told(worker.stop, say)
    say(f"worker {worker.worker.holder} serves {', '.join(queues) or 'all queues'} of {store.name!r}")
    _note_unnamed(queues, say)
    if until_idle:
        Scheduler(store).once()
        worker.run(until_idle=True)
        return
    with scheduling(store), pruning(store):
        worker.run()


def relay(store: Store, publisher: Publisher, *, queues: Sequence[str], say: Say) -> None:
    """Publish what is due.

    Args:
        store: where it is.
        publisher: where it goes.
        queues: the queues to serve; empty: all.
        say: writes a line for people.
    """
    relay = Relay(
        store.connect, publisher, store.settings, queues=queues, paces=shared_paces, spans=PublishSpans()
    )  # fmt: skip
    beside = _messenger(store, publisher)

    def stop() -> None:
        relay.stop()
        if beside is not None:
            beside.stop()

    _until_told(stop, say)
    say(f"relay {relay.holder} serves {', '.join(queues) or 'all queues'} of {store.name!r}")
    _note_unnamed(queues, say)
    with scheduling(store), pruning(store), _running(beside, 1.5 * store.settings.publish_timeout + 2):
        relay.run()


def _note_unnamed(queues: Sequence[str], say: Say) -> None:
    """Tell of queues that no step names; a process that knows no definition cannot tell."""
    known = registry.queues()
    for queue in queues if known else ():
        if queue not in known:
            say(f"note: no step that this process knows is in queue {queue!r}; is it spelled right?")


def _messenger(store: Store, publisher: Publisher) -> Messenger | None:
    """Sends plain messages beside the relay of sagas: neither waits for the other."""
    routes = getattr(publisher, "messages", None)
    return None if routes is None else Messenger(store.connect, routes, store.settings)


@contextmanager
def _running(messenger: Messenger | None, patience: float) -> Iterator[None]:
    """Run it in a thread for as long as the block lasts, and a while longer if it has something to end."""
    if messenger is None:
        yield
        return
    thread = threading.Thread(target=messenger.run, name="sagas-messenger", daemon=True)
    thread.start()
    try:
        yield
    finally:
        messenger.stop()
        thread.join(patience)


def metrics(store: Store, *, port: int, address: str, say: Say) -> None:
    """Answer scrapes of Prometheus.

    Args:
        store: what is measured.
        port: where to listen; 0: a free one.
        address: on which address.
        say: writes a line for people.

    Raises:
        ConfigurationError: prometheus-client is not installed, or the port cannot be had.
    """
    from sagas import exporter

    told = threading.Event()
    found, stop = exporter.serve(store, port=port, address=address)
    _until_told(told.set, say)
    say(f"metrics of {store.name!r} are at http://{address}:{found}/metrics")
    try:
        told.wait()
    finally:
        stop()


def _until_told(stop: Callable[[], object], say: Say) -> None:
    """SIGTERM and Ctrl-C let it end what it has begun. A second Ctrl-C ends it there and then: whatever it was at is
    taken over, as after any death."""

    def told(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _aside(stop)
        with suppress(RuntimeError):  # it was writing something when the signal came
            say("ending, after what has begun; Ctrl-C ends it at once, and another worker takes over")

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, told)


def _aside(stop: Callable[[], object]) -> None:
    """The thread that a signal interrupts may hold the very locks that `stop` asks for, or that `Thread` does."""
    try:
        _thread.start_new_thread(stop, ())
    except RuntimeError:  # no thread to be had
        stop()
