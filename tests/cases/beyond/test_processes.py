"""What can be wrong around a worker's process: outputs that nobody reads, no way to find out a password."""

from __future__ import annotations

import signal
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import psycopg
import pytest

from sagas import serving
from sagas.embedded import Embedded
from sagas.guard import fingerprint
from sagas.heart import Heart
from sagas.reception import definition_of
from sagas.recorder import Recorder
from sagas.retention import Pruner
from sagas.settings import Settings
from sagas_outbox.link import Link
from sagas_outbox.wake import Ear

ENDING = """
import logging, os, sys, threading
from sagas.embedded import end_process

def fill(number):
    os.set_blocking(number, False)
    try:
        while True:
            os.write(number, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(number, True)

logging.basicConfig(stream=sys.stderr)
fill(2)
sys.stdout.close()
threading.Thread(target=end_process, args=("a lease is lost",)).start()
threading.Event().wait()
"""


def test_a_worker_ends_itself_whatever_became_of_its_outputs() -> None:
    """A worker whose leases pass to others ends at once: also when its log goes to a pipe that nobody reads, and its
    output is closed. If it lived on, two workers would act for one saga."""
    with subprocess.Popen([sys.executable, "-c", ENDING], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.wait(20) == -signal.SIGKILL
        finally:
            process.kill()


PATIENT = """
import threading
from sagas import serving

serving._until_told(lambda: None, lambda line: print(line, flush=True))
print("ready", flush=True)
threading.Event().wait()
"""


def test_a_second_ctrl_c_ends_a_worker_that_is_busy() -> None:
    """The first lets it end what it has begun, and says so; a body may take long. Whoever cannot wait presses again."""
    command = [sys.executable, "-c", PATIENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline().startswith("ending, after what has begun; Ctrl-C ends it at once")
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == -signal.SIGINT
        finally:
            process.kill()


def heart(connect: Callable[[], Any]) -> Heart:
    """What keeps leases; one of them."""
    settings = Settings(heartbeat=0.1, hand_back_after=0.1)
    made = Heart(
        Link(connect), holder="worker:a", settings=settings, end_process=print, ends_overruns=False,
        draining=lambda: False,
    )  # fmt: skip
    row: Any = SimpleNamespace(held=(1, 1), leased_at=time.monotonic())
    made.add(made.open_job(), [row])
    return made


def pruner(connect: Callable[[], Any]) -> Pruner:
    """What removes old sagas."""
    store: Any = SimpleNamespace(connect=connect, settings=Settings())
    return Pruner(store, idle=0.01)


def ear(connect: Callable[[], Any]) -> Ear:
    """What listens for wake-ups."""
    return Ear(connect, lambda: None)


class Claims:
    """An embedded worker in a thread of its own."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        store: Any = SimpleNamespace(connect=connect, settings=Settings(poll=0.01, wake=False), name="nowhere")
        self.worker = Embedded(store, concurrency=1)
        self.thread = threading.Thread(target=self.worker.run)
        self.start = self.thread.start

    def stop(self) -> None:
        assert self.thread.is_alive()
        self.worker.stop()
        self.thread.join(20)


@pytest.mark.parametrize("make", [heart, pruner, ear, Claims])
def test_whoever_tells_passwords_is_away_for_a_while(make: Callable[[Callable[[], Any]], Any]) -> None:
    """The database's address or password is asked for somewhere (a token service, a vault), and that fails with an
    error of its own kind. What runs beside the work tries again; it does not end in silence."""
    tries, again = 0, threading.Event()

    def connect() -> NoReturn:
        nonlocal tries
        tries += 1
        if tries > 1:
            again.set()
        raise RuntimeError("the token service is down")

    beside = make(connect)
    beside.start()
    try:
        assert again.wait(20)
    finally:
        beside.stop()


def test_results_wait_for_whoever_tells_passwords(caplog: pytest.LogCaptureFixture) -> None:
    """Recording is tried again, as with a server that is down; by a process that is to end until its leases do."""
    tries = 0

    def connect() -> NoReturn:
        nonlocal tries
        tries += 1
        raise RuntimeError("the token service is down")

    recorder = Recorder(
        Link(connect), definition_of, holder="worker:a", lease=0.5, goes_on=lambda *_: False, draining=lambda: True
    )
    happened: Any = (SimpleNamespace(held=(1, 1), label="a body"), None)
    assert recorder.record([happened]) == []
    assert tries > 2 and "a body: what happened could not be recorded" in caplog.text


def test_a_signal_ends_a_worker_whatever_it_interrupts() -> None:
    """The thread that it interrupts may hold a lock which ending asks for."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    held, stopped, got = threading.Lock(), threading.Event(), []

    def stop() -> None:
        got.append(held.acquire(timeout=20))
        stopped.set()

    serving._until_told(stop, lambda line: None)
    try:
        with held:
            signal.raise_signal(signal.SIGTERM)
        assert stopped.wait(20) and got == [True]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_no_thread_is_left_for_what_is_to_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body outlives its time, which can only be told; the one who ends a worker without its database is still
    there afterwards."""
    ended = threading.Event()
    made = Heart(
        Link(no_database), holder="worker:a", settings=Settings(grace=0.05, lease=0.9, heartbeat=0.3),
        end_process=lambda reason: ended.set(), ends_overruns=False, draining=lambda: False,
    )  # fmt: skip
    row: Any = SimpleNamespace(held=(1, 1), leased_at=time.monotonic(), label="a body")
    made.start()
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    try:
        job = made.open_job()
        made.add(job, [row])
        made.take(job)
        made.begin_body(job, row, 0.01)
        assert ended.wait(20)
    finally:
        monkeypatch.undo()
        made.stop()


def no_database() -> NoReturn:
    """It is cut off."""
    raise psycopg.OperationalError("no route to host")


def no_thread(thread: threading.Thread) -> NoReturn:
    """As Python says it where the system has none to give."""
    raise RuntimeError("can't start new thread")


def test_a_set_in_the_request_of_an_effect() -> None:
    """`effect(..., request={...})` with a set: each process has its elements in another order, and it is the same
    request when a step is tried again elsewhere."""
    tags = set(string.ascii_letters)
    assert fingerprint({"tags": tags}) == fingerprint({"tags": sorted(tags)})
