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

import pytest

from sagas.guard import fingerprint
from sagas.heart import Heart
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


@pytest.mark.parametrize("make", [heart, pruner, ear])
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


def test_a_set_in_the_request_of_an_effect() -> None:
    """`effect(..., request={...})` with a set: each process has its elements in another order, and it is the same
    request when a step is tried again elsewhere."""
    tags = set(string.ascii_letters)
    assert fingerprint({"tags": tags}) == fingerprint({"tags": sorted(tags)})
