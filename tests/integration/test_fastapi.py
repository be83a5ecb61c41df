"""The FastAPI shop on real servers: uvicorn, a worker, Postgres through asyncpg, and a bank that misbehaves."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from example_project.bank.desk import Desk, open_bank
from sagas.testing.processes import Process, ProcessGroup
from sagas.testing.servers import Postgres

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 60.0  # seconds, on a machine that is busy
SHOP = "example_project.fastapi_shop"
LEASE = "3"


class Shop:
    """The running shop: its API, its workers, its bank and its database."""

    def __init__(self, url: str, processes: ProcessGroup) -> None:
        self.url, self._processes = url, processes
        self.bank: Desk = open_bank(processes)
        self._env = {
            "DATABASE_URL": url.replace("postgresql:", "postgresql+asyncpg:"), "BANK_URL": self.bank.url,
            "LEASE": LEASE, "DJANGO_SETTINGS_MODULE": "",
        }  # fmt: skip
        assert self._python("-m", f"{SHOP}.tables", name="tables").wait(LONGEST) == 0, processes.report()
        self.server = self._python("-m", "uvicorn", f"{SHOP}.app:app", "--port", "0", name="uvicorn")
        self.server.wait_for_output("Uvicorn running", timeout=LONGEST)
        (self._address,) = re.findall(r"running on (http://\S+)", self.server.output())

    def worker(self) -> Process:
        """Start a worker."""
        return self._python("-m", "sagas.cli", "--app", f"{SHOP}.db:sagas", "worker", name="worker")

    def _python(self, *arguments: str, name: str) -> Process:
        return self._processes.python(*arguments, name=name, env=self._env, cwd=ROOT)

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """One request to the API: status and body of the answer."""
        request = urllib.request.Request(
            self._address + path, method=method, data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=LONGEST) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as problem:
            with problem:
                return problem.code, json.loads(problem.read())

    def place(self, total: str = "25.00") -> str:
        """Place an order; returns its id."""
        status, body = self.call("POST", "/orders", {"item": "lamp", "total": total})
        assert (status, body["saga"]) == (201, "running")
        return str(body["id"])

    def settle(self, order: str, event: str) -> tuple[int, Any]:
        """Post the bank's webhook."""
        return self.call("POST", "/webhooks/bank", {"id": event, "order": order})

    def approve(self, order: str, ok: bool = True) -> None:
        """Say what the office says."""
        assert self.call("POST", f"/orders/{order}/approval", {"ok": ok, "by": "ann"}) == (202, None)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + LONGEST
        while not condition():
            assert time.monotonic() < deadline, f"did not happen within {LONGEST} s\n{self._processes.report()}"
            time.sleep(0.05)

    def until_ended(self, order: str, saga: str) -> dict[str, Any]:
        """Wait for the end of a saga; returns what the API says of the order."""
        self.until(lambda: self.rows("select finished_at from sagas_saga where key = %s", f"order-{order}")[0][0])
        status, found = self.call("GET", f"/orders/{order}")
        assert (status, found["saga"]) == (200, saga), found
        return dict(found)

    def rows(self, query: str, *parameters: object) -> list[Any]:
        """What the database says."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query.encode(), parameters or None).fetchall()

    def charged(self, order: str) -> list[str]:
        """The charges and refunds of an order in the bank's ledger."""
        return [entry["kind"] for entry in self.bank.ledger()["entries"] if entry["order"] == order]


@pytest.fixture(scope="module")
def shop(postgres_server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop without workers, for the tests of this module."""
    name = f"fastapi_{uuid.uuid4().hex[:12]}"
    url = postgres_server.create_database(name)
    try:
        with ProcessGroup(tmp_path_factory.mktemp("fastapi")) as processes:
            yield Shop(url, processes)
    finally:
        postgres_server.drop_database(name)


@pytest.fixture
def worker(shop: Shop) -> Iterator[Process]:
    """A worker for the length of a test; the bank behaves again afterwards."""
    worker = shop.worker()
    yield worker
    shop.bank.behave()
    worker.terminate()
    assert worker.wait(LONGEST) == 0


def test_an_order_is_shipped(shop: Shop, worker: Process) -> None:
    """Accepted, charged, settled, approved, shipped; and money was moved once."""
    order = shop.place()
    shop.approve(order)  # early: it is kept until the saga gets there
    assert shop.settle(order, f"event-{order}") == (202, {"first": True})
    found = shop.until_ended(order, "completed")
    assert found["status"] == "shipped"
    assert set(found["steps"]) == {"accept", "charge", "settled", "approval", "ship"}
    assert shop.charged(order) == ["charge"]
    failed = (
        "select data from sagas_log where kind = 'step_failed' and saga_id = (select id from sagas_saga where key = %s)"
    )
    assert shop.rows(failed, f"order-{order}") == []


def test_a_webhook_that_is_posted_twice(shop: Shop, worker: Process) -> None:
    """Ten posts at once and one later count once; a webhook about nothing is answered 404."""
    order = shop.place()
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: shop.settle(order, f"event-{order}"), range(10)))
    assert {status for status, _ in answers} == {202}
    assert sorted(body["first"] for _, body in answers) == [False] * 9 + [True]
    shop.approve(order)
    shop.until_ended(order, "completed")
    assert shop.settle(order, f"event-{order}") == (202, {"first": False})
    signals = "select count(*) from sagas_log where kind = 'signalled' and step = 'settled'" \
              " and saga_id = (select id from sagas_saga where key = %s)"  # fmt: skip
    assert shop.rows(signals, f"order-{order}") == [(1,)]
    assert shop.settle(str(uuid.uuid4()), "event-x")[0] == 404


def test_a_worker_that_is_killed_while_it_charges(shop: Shop) -> None:
    """kill -9 while the bank works on the charge: another worker asks what became of it, and charges nothing twice."""
    first = shop.worker()
    shop.bank.script({"fault": "hold"})
    order = shop.place()
    shop.until(lambda: any(one["order"] == order for one in shop.bank.in_flight()))
    first.kill()
    first.wait(LONGEST)
    second = shop.worker()
    shop.bank.behave()
    shop.settle(order, f"event-{order}")
    shop.approve(order)
    found = shop.until_ended(order, "completed")
    second.terminate()
    assert (second.wait(LONGEST), found["status"]) == (0, "shipped")
    assert shop.charged(order) == ["charge"]
    work = "select count(*) from sagas_outbox where saga_id = (select id from sagas_saga where key = %s)"
    assert shop.rows(work, f"order-{order}") == [(0,)]


def test_what_the_bank_loses(shop: Shop, worker: Process) -> None:
    """Lost replies and errors: the bank is asked, and the order is paid once."""
    shop.bank.script({"fault": "lose_reply"}, {"fault": "error", "times": 1})
    orders = [shop.place() for _ in range(5)]
    for order in orders:
        shop.settle(order, f"event-{order}")
        shop.approve(order)
    for order in orders:
        shop.until_ended(order, "completed")
        assert shop.charged(order) == ["charge"]


def test_what_is_undone(shop: Shop, worker: Process) -> None:
    """An office that says no, a customer who cancels: no money is kept, and the order says so."""
    refused, cancelled = shop.place(), shop.place()
    shop.until(lambda: shop.charged(refused) and shop.charged(cancelled))
    shop.approve(refused, ok=False)
    shop.settle(refused, f"event-{refused}")
    assert shop.call("DELETE", f"/orders/{cancelled}") == (202, None)
    found = shop.until_ended(refused, "compensated")
    assert (found["status"], "not approved by ann" in found["error"]) == ("cancelled", True)
    assert shop.until_ended(cancelled, "cancelled")["status"] == "cancelled"
    assert shop.charged(refused) == shop.charged(cancelled) == ["charge", "refund"]
    assert shop.call("DELETE", f"/orders/{cancelled}")[0] == 409, "what has ended is not cancelled any more"


def test_a_refused_card(shop: Shop, worker: Process) -> None:
    """The bank says no: nothing was charged, and nothing is refunded."""
    shop.bank.script({"fault": "refuse"})
    order = shop.place()
    found = shop.until_ended(order, "compensated")
    assert (found["status"], shop.charged(order)) == ("cancelled", [])


def test_bad_input_starts_nothing(shop: Shop) -> None:
    """What FastAPI refuses leaves neither order nor saga; what is not there is 404."""
    before = shop.rows("select (select count(*) from orders), (select count(*) from sagas_saga)")
    assert shop.call("POST", "/orders", {"item": "lamp", "total": "-1"})[0] == 422
    assert shop.rows("select (select count(*) from orders), (select count(*) from sagas_saga)") == before
    nobody = uuid.uuid4()
    assert shop.call("GET", f"/orders/{nobody}")[0] == 404
    assert shop.call("DELETE", f"/orders/{nobody}")[0] == 404


def test_hundreds_of_orders_leave_no_connection_behind(shop: Shop) -> None:
    """300 orders, 8 at a time: as many connections as before, none idle in a transaction, and memory stays flat."""

    def place_many(many: int) -> tuple[int, int]:
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(lambda _: shop.place(), range(many)))) == many
        ((count,),) = shop.rows(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        return count, resident(shop.server.pid)

    before, memory_before = place_many(60)
    after, memory = place_many(300)
    idle = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in tr%'"
    shop.until(lambda: shop.rows(idle) == [(0,)])
    print(f"connections {before} -> {after}, uvicorn {memory_before / 2**20:.1f} -> {memory / 2**20:.1f} MiB")
    assert after <= max(before, 10)  # the pool's size and overflow are 5 and 10
    assert memory < memory_before * 1.1


def resident(pid: int) -> int:
    """Bytes of memory that a process uses."""
    (kilobytes,) = re.findall(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(kilobytes) * 1024
