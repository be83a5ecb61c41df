"""The shop's client of the bank, against a real bank: what each answer becomes, and when a connection is used again."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from itertools import count

import pytest

from example_project.bank.desk import ROOT, Desk, open_bank
from example_project.bank_client import BankClient, BankError
from sagas import NOT_DONE, Refused, Undecided
from sagas.testing.processes import ProcessGroup

names = count(1)

FORK = """
import os, sys
from decimal import Decimal
from example_project.bank_client import BankClient
client = BankClient(sys.argv[1])
mine = client.charge(Decimal(1), order="parent", idempotency_key="fork-parent")
child = os.fork()
for number in range(20):
    key = f"fork-{child}-{number}"
    name = client.charge(Decimal(1), order=key, idempotency_key=key)
    assert client.find_charge(key) == name, (key, name)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture(scope="module")
def process() -> Iterator[Desk]:
    with ProcessGroup() as processes:
        yield open_bank(processes, "--longest-wait", "5")


@pytest.fixture
def desk(process: Desk) -> Iterator[Desk]:
    yield process
    process.behave()


@pytest.fixture
def client(desk: Desk) -> Iterator[BankClient]:
    client = BankClient(desk.url, timeout=0.5)
    yield client
    client.close()


@pytest.fixture
def order() -> str:
    return f"client-{next(names)}"


def test_a_charge_is_made_found_and_refunded(desk: Desk, client: BankClient, order: str) -> None:
    """The plain way."""
    charge_id = client.charge(Decimal("12.3"), order=order, idempotency_key=order)
    assert client.find_charge(order) == charge_id
    client.refund(charge_id, idempotency_key=f"{order}-undo")
    client.refund(charge_id, idempotency_key=f"{order}-undo")
    assert desk.ledger()["orders"][order] == "0.00"


def test_a_key_nobody_has_seen_is_not_done(client: BankClient, order: str) -> None:
    """The bank can say for certain that nothing happened yet."""
    assert client.find_charge(order) is NOT_DONE


def test_a_declined_card_is_refused(desk: Desk, client: BankClient, order: str) -> None:
    """402 is the bank's word that it did nothing."""
    desk.script({"fault": "refuse", "order": order})
    with pytest.raises(Refused, match="card declined"):
        client.charge(Decimal(1), order=order, idempotency_key=order)


def test_a_void_key_is_refused(client: BankClient, order: str) -> None:
    """So is 410: what was voided before it arrived will never happen."""
    client.void(order, idempotency_key=f"{order}-undo")
    with pytest.raises(Refused, match="void"):
        client.charge(Decimal(1), order=order, idempotency_key=order)


def test_a_failure_is_not_a_refusal(desk: Desk, client: BankClient, order: str) -> None:
    """500 says nothing about whether the money moved."""
    desk.script({"fault": "error", "order": order, "when": "after"})
    with pytest.raises(BankError, match="500"):
        client.charge(Decimal(1), order=order, idempotency_key=order)
    assert client.find_charge(order) != NOT_DONE


def test_a_lost_reply_is_an_error_and_not_sent_again(desk: Desk, client: BankClient, order: str) -> None:
    """The client does not repeat a request by itself, although its connection was an old one."""
    client.find_charge(order)
    desk.script({"fault": "lose_reply", "order": order})
    with pytest.raises(BankError, match="outcome unknown"):
        client.charge(Decimal(1), order=order, idempotency_key=order)
    assert desk.ledger()["keys"][order]["seen"] == 1
    assert client.charge(Decimal(1), order=order, idempotency_key=order) == client.find_charge(order)


def test_waiting_has_an_end(desk: Desk, client: BankClient, order: str) -> None:
    """A bank that hangs costs the timeout; until it has decided nobody knows; the next answer is the right one."""
    desk.script({"fault": "hold", "order": order})
    began = time.monotonic()
    with pytest.raises(BankError, match="TimeoutError"):
        client.charge(Decimal(1), order=order, idempotency_key=order)
    assert time.monotonic() - began < 2
    with pytest.raises(Undecided, match="in_flight"):
        client.find_charge(order)
    desk.release(order=order)
    assert client.charge(Decimal(1), order=order, idempotency_key=order) == client.find_charge(order)


def test_no_bank_is_an_error(order: str) -> None:
    """Nobody listens: an error that says where."""
    with pytest.raises(BankError, match="POST /charges"):
        BankClient("http://127.0.0.1:1").charge(Decimal(1), order=order, idempotency_key=order)


def test_a_connection_that_the_bank_closed_is_not_used(order: str) -> None:
    """A bank that was restarted is simply called again."""
    with ProcessGroup() as processes:
        desk = open_bank(processes)
        port = desk.url.rpartition(":")[2]
        client = BankClient(desk.url)
        client.charge(Decimal(1), order=order, idempotency_key=order)
        processes.processes[-1].kill()
        open_bank(processes, "--port", port)
        assert client.find_charge(order) is NOT_DONE
        client.close()


def test_each_thread_has_its_own_connection(client: BankClient) -> None:
    """Many threads share a client and get their own answers."""
    wrong = []

    def trade(thread: int) -> None:
        for number in range(10):
            key = f"thread-{thread}-{number}"
            charge_id = client.charge(Decimal(1), order=key, idempotency_key=key)
            if client.find_charge(key) != charge_id:
                wrong.append(key)
        client.close()

    threads = [threading.Thread(target=trade, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert wrong == []


def test_a_forked_child_has_its_own_connection(desk: Desk) -> None:
    """Parent and child go on at the same time and never read each other's answers."""
    done = subprocess.run([sys.executable, "-c", FORK, desk.url], cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("url", ["https://bank", "bank:80", ""])
def test_other_addresses_are_refused(url: str) -> None:
    """A wrong BANK_URL is noticed when the process starts, not at the first charge."""
    with pytest.raises(ValueError, match="expected http"):
        BankClient(url)
