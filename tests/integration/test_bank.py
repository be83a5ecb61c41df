"""The example's bank as a real process, over HTTP: every fault, keys, tombstones, and a ledger that adds up."""

from __future__ import annotations

import http.client
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import count
from typing import Any

import pytest

from example_project.bank.desk import Desk, open_bank
from sagas.testing.processes import ProcessGroup

names = count(1)


@pytest.fixture(scope="module")
def bank_process() -> Iterator[Desk]:
    with ProcessGroup() as processes:
        yield open_bank(processes, "--longest-wait", "5")


@pytest.fixture
def bank(bank_process: Desk) -> Iterator[Desk]:
    """A bank without faults; each test uses orders of its own."""
    yield bank_process
    bank_process.behave()


@pytest.fixture
def order() -> str:
    return f"order-{next(names)}"


def charge(bank: Desk, order: str, key: str | None = None, amount: object = "10.00") -> tuple[int, dict[str, Any]]:
    return bank.call("POST", "/charges", {"amount": amount, "order": order}, key=key or f"key-{order}")


def refund(bank: Desk, **which: str) -> tuple[int, dict[str, Any]]:
    return bank.call("POST", "/refunds", which, key=f"refund-{next(names)}")


def find(bank: Desk, key: str) -> dict[str, Any]:
    return bank.call("GET", f"/charges?key={key}")[1]


def charges_of(bank: Desk, order: str) -> list[dict[str, Any]]:
    return [entry for entry in bank.ledger()["entries"] if entry["order"] == order and entry["kind"] == "charge"]


def wait_until(condition: Callable[[], object], within: float = 5.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def is_held(bank: Desk, order: str) -> bool:
    return any(one["order"] == order and one["doing"] == "hold" for one in bank.in_flight())


def test_a_charge_is_in_the_ledger(bank: Desk, order: str) -> None:
    """201 means: the money moved, and the ledger says so to the cent."""
    status, body = charge(bank, order, amount="19.90")
    assert (status, body["amount"]) == (201, "19.90")
    assert [entry["id"] for entry in charges_of(bank, order)] == [body["id"]]
    assert bank.ledger()["orders"][order] == "19.90"


def test_a_key_has_one_effect(bank: Desk, order: str) -> None:
    """The same request under the same key gets the same answer, and the ledger counts how often the key was seen."""
    answers = [charge(bank, order) for _ in range(3)]
    assert answers == [answers[0]] * 3
    assert len(charges_of(bank, order)) == 1
    assert bank.ledger()["keys"][f"key-{order}"] == {"kind": "charge", "seen": 3}


def test_a_key_has_one_effect_however_many_ask_at_once(bank: Desk, order: str) -> None:
    """Twenty concurrent requests under one key: one charge, twenty equal answers."""
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: charge(bank, order), range(20)))
    assert answers == [answers[0]] * 20
    assert answers[0][0] == 201
    assert len(charges_of(bank, order)) == 1


def test_a_key_with_another_request_is_an_error(bank: Desk, order: str) -> None:
    """One key means one request; another amount under it moves nothing."""
    charge(bank, order)
    assert charge(bank, order, amount="11.00")[0] == 422
    assert len(charges_of(bank, order)) == 1


def test_other_keys_are_other_charges(bank: Desk, order: str) -> None:
    """Without the same key the bank cannot know: the order is reported as charged twice."""
    charge(bank, order, key=f"{order}-a")
    charge(bank, order, key=f"{order}-b")
    assert bank.ledger()["duplicate_charges"][order] == 2


@pytest.mark.parametrize("amount", ["0", "0.00", "-1.00", "1.001", "1e3", "NaN", "", 5, None, "1,00", "9" * 13])
def test_amounts_are_decimal_strings(bank: Desk, order: str, amount: object) -> None:
    """Anything but a decimal string above 0 with at most two places is refused as a bad request."""
    assert charge(bank, order, amount=amount)[0] == 400
    assert charges_of(bank, order) == []


@pytest.mark.parametrize(
    ("method", "path", "body", "key", "status"),
    [
        ("POST", "/charges", {"amount": "1.00", "order": "o"}, None, 400),
        ("POST", "/charges", {"amount": "1.00"}, "k", 400),
        ("POST", "/charges", [], "k", 400),
        ("POST", "/refunds", {}, "k", 400),
        ("POST", "/refunds", {"charge_id": "ch_0"}, "k", 404),
        ("POST", "/faults", {"fault": "earthquake"}, None, 400),
        ("POST", "/faults", {"fault": "slow", "secnods": 1}, None, 400),
        ("POST", "/faults", {"fault": "slow", "seconds": "1"}, None, 400),
        ("GET", "/charges", None, None, 400),
        ("GET", "/vault", None, None, 404),
    ],
)
def test_bad_requests(bank: Desk, method: str, path: str, body: object, key: str | None, status: int) -> None:
    """A request that makes no sense is told so and changes nothing."""
    before = bank.ledger()["entries"]
    assert bank.call(method, path, body, key=key)[0] == status
    assert bank.ledger()["entries"] == before


def test_a_charge_is_refunded_once(bank: Desk, order: str) -> None:
    """Refunding again gives the same refund; the order's net is zero."""
    charge_id = charge(bank, order)[1]["id"]
    first = refund(bank, charge_id=charge_id)
    second = refund(bank, charge_id=charge_id)
    assert (first[0], second[0]) == (201, 200)
    assert first[1] == second[1]
    assert bank.ledger()["orders"][order] == "0.00"
    assert find(bank, f"key-{order}")["refunded"] is True


def test_a_refund_by_key_finds_the_charge(bank: Desk, order: str) -> None:
    """Who does not know the id can refund by the key the charge was made under."""
    charge(bank, order)
    status, body = refund(bank, charge_key=f"key-{order}")
    assert (status, len(body["refunds"])) == (201, 1)
    assert bank.ledger()["orders"][order] == "0.00"


def test_a_refund_of_an_unknown_key_is_a_tombstone(bank: Desk, order: str) -> None:
    """A charge that lands after its refund is refused, also when it is asked for again."""
    assert refund(bank, charge_key=f"key-{order}")[0] == 200
    assert [charge(bank, order)[0] for _ in range(2)] == [410, 410]
    assert find(bank, f"key-{order}")["state"] == "absent"
    assert charges_of(bank, order) == []


def test_a_tombstone_stops_a_charge_that_is_under_way(bank: Desk, order: str) -> None:
    """The refund overtakes a charge that the bank still holds: the charge comes to nothing."""
    bank.script({"fault": "hold", "order": order})
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(charge, bank, order)
        wait_until(lambda: is_held(bank, order))
        refund(bank, charge_key=f"key-{order}")
        bank.release(order=order)
        assert late.result()[0] == 410
    assert charges_of(bank, order) == []


def test_ignored_tombstones_let_a_late_charge_through(bank: Desk, order: str) -> None:
    """The fault `ignore_tombstones`: the bank that cannot void a key."""
    bank.script({"fault": "ignore_tombstones", "order": order})
    refund(bank, charge_key=f"key-{order}")
    assert charge(bank, order)[0] == 201


def test_refuse(bank: Desk, order: str) -> None:
    """402, no money moves, and the key keeps that answer when the bank has changed its mind."""
    bank.script({"fault": "refuse", "order": order})
    assert charge(bank, order)[0] == 402
    bank.behave()
    assert charge(bank, order)[0] == 402
    assert charges_of(bank, order) == []


def test_error_before_the_effect(bank: Desk, order: str) -> None:
    """500, nothing happened; the next attempt goes through."""
    bank.script({"fault": "error", "order": order})
    assert charge(bank, order)[0] == 500
    assert find(bank, f"key-{order}")["state"] == "absent"
    assert charge(bank, order)[0] == 201


def test_error_after_the_effect(bank: Desk, order: str) -> None:
    """500, yet the money moved: asking tells, and a retry repeats the answer, not the effect."""
    bank.script({"fault": "error", "order": order, "when": "after"})
    assert charge(bank, order)[0] == 500
    found = find(bank, f"key-{order}")
    assert found["state"] == "done"
    assert charge(bank, order) == (201, {"id": found["id"], "order": order, "amount": "10.00"})
    assert len(charges_of(bank, order)) == 1


def test_slow(bank: Desk, order: str) -> None:
    """The answer comes as late as scripted, and right."""
    bank.script({"fault": "slow", "order": order, "seconds": 0.3})
    began = time.monotonic()
    assert charge(bank, order)[0] == 201
    assert 0.3 <= time.monotonic() - began < 3


@pytest.mark.parametrize(("when", "state"), [("before", "absent"), ("after", "done")])
def test_lose_reply(bank: Desk, order: str, when: str, state: str) -> None:
    """The connection ends without an answer; only asking tells whether the money moved."""
    bank.script({"fault": "lose_reply", "order": order, "when": when})
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        charge(bank, order)
    assert find(bank, f"key-{order}")["state"] == state
    assert charge(bank, order)[0] == 201
    assert len(charges_of(bank, order)) == 1


def test_replies_are_lost_after_the_effect_unless_said_otherwise(bank: Desk, order: str) -> None:
    """A lost reply is the one after the effect."""
    bank.script({"fault": "lose_reply", "order": order})
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        charge(bank, order)
    assert find(bank, f"key-{order}")["state"] == "done"


def test_hang(bank: Desk, order: str) -> None:
    """No answer while the caller waits; in flight until the hang ends, and then it came to nothing."""
    bank.script({"fault": "hang", "order": order})
    with pytest.raises(TimeoutError):
        bank.call("POST", "/charges", {"amount": "1.00", "order": order}, key=f"key-{order}", timeout=0.3)
    assert find(bank, f"key-{order}")["state"] == "in_flight"
    bank.release(order=order)
    wait_until(lambda: find(bank, f"key-{order}")["state"] == "absent")


def test_a_held_charge_stays_in_flight_until_it_is_released(bank: Desk, order: str) -> None:
    """Held: in the register with its arrival number and caller; released: it lands."""
    bank.script({"fault": "hold", "order": order})
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(charge, bank, order)
        wait_until(lambda: is_held(bank, order))
        assert find(bank, f"key-{order}")["state"] == "in_flight"
        [arrival] = [one["arrival"] for one in bank.in_flight() if one["order"] == order]
        assert bank.release(arrival=arrival) == [arrival]
        assert held.result()[0] == 201
    assert find(bank, f"key-{order}")["state"] == "done"
    assert not bank.in_flight()


def test_a_held_charge_lands_although_its_caller_is_gone(bank: Desk, order: str) -> None:
    """What a killed worker leaves behind: the request goes on at the bank."""
    bank.script({"fault": "hold", "order": order})
    with pytest.raises(TimeoutError):
        bank.call("POST", "/charges", {"amount": "1.00", "order": order}, key=f"key-{order}", timeout=0.2)
    bank.release()
    wait_until(lambda: find(bank, f"key-{order}")["state"] == "done")


def test_a_retry_beside_a_held_request_has_one_effect(bank: Desk, order: str) -> None:
    """The retry charges, the held request lands on a known key and repeats the answer."""
    bank.script({"fault": "hold", "order": order})
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(charge, bank, order)
        wait_until(lambda: is_held(bank, order))
        retry = charge(bank, order)
        bank.release(order=order)
        assert held.result() == retry
    assert len(charges_of(bank, order)) == 1


def test_every_wait_ends_by_itself() -> None:
    """A hold that nobody releases ends after the bank's longest wait."""
    with ProcessGroup() as processes:
        bank = open_bank(processes, "--longest-wait", "0.3")
        bank.script({"fault": "hold"}, {"fault": "hang"})
        assert charge(bank, "o")[0] == 201
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            charge(bank, "o", key="another")


def test_forgotten_keys_charge_again(bank: Desk, order: str) -> None:
    """The fault `forget_keys`: within its time one effect, afterwards a second, and asking still finds both."""
    bank.script({"fault": "forget_keys", "order": order, "seconds": 0.4})
    first, second = charge(bank, order), charge(bank, order)
    assert first == second
    time.sleep(0.45)
    assert charge(bank, order)[1]["id"] != first[1]["id"]
    assert len(find(bank, f"key-{order}")["ids"]) == 2
    assert bank.ledger()["duplicate_charges"][order] == 2


def test_keys_are_honoured_for_a_set_time() -> None:
    """The same without a fault: `--key-ttl`."""
    with ProcessGroup() as processes:
        bank = open_bank(processes, "--key-ttl", "0.3")
        first = charge(bank, "o")
        time.sleep(0.35)
        assert charge(bank, "o")[1]["id"] != first[1]["id"]


def test_ignored_keys_charge_every_time(bank: Desk, order: str) -> None:
    """The fault `ignore_keys`: one charge a request; asking finds all of them, refunding by key pays all back."""
    bank.script({"fault": "ignore_keys", "order": order})
    ids = [charge(bank, order)[1]["id"] for _ in range(3)]
    assert find(bank, f"key-{order}")["ids"] == ids
    assert len(refund(bank, charge_key=f"key-{order}")[1]["refunds"]) == 3
    assert bank.ledger()["orders"][order] == "0.00"


def test_faults_of_refunds(bank: Desk, order: str) -> None:
    """A rule may be about refunds; the refund retried is still one."""
    bank.script({"fault": "error", "on": "refund", "order": order, "when": "after"})
    charge(bank, order)
    assert refund(bank, charge_key=f"key-{order}")[0] == 500
    assert refund(bank, charge_key=f"key-{order}")[0] == 201
    assert bank.ledger()["orders"][order] == "0.00"


def test_a_seeded_share_of_orders_is_struck(bank: Desk) -> None:
    """The same seed strikes the same orders, each as often as scripted, and the script tells which."""
    orders = [f"share-{number}" for number in range(60)]
    bank.script({"fault": "error", "proportion": 0.3, "seed": 7})
    struck = {order for order in orders if charge(bank, order)[0] == 500}
    assert 5 < len(struck) < 35
    assert bank.faults()[0]["orders"] == sorted(struck)
    assert [charge(bank, order)[0] for order in struck] == [201] * len(struck)
    bank.behave()
    bank.script({"fault": "error", "proportion": 0.3, "seed": 7})
    assert {order for order in orders if charge(bank, order, key=f"again-{order}")[0] == 500} == struck


def test_the_ledger_adds_up(bank: Desk) -> None:
    """Under concurrent charges and refunds, what customers paid is what the shop got, exactly."""
    orders = [f"sum-{number}" for number in range(100)]
    before = bank.ledger()

    def trade(number: int) -> None:
        charge(bank, orders[number], amount=f"{number}.{number:02}" if number else "0.01")
        if number % 3 == 0:
            refund(bank, charge_key=f"key-{orders[number]}")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(trade, range(100)))
    ledger = bank.ledger()
    expected = sum(Decimal(f"{number}.{number:02}") for number in range(100) if number % 3)
    balances = ledger["balances"]
    assert Decimal(balances["shop"]) - Decimal(before["balances"]["shop"]) == expected
    assert Decimal(balances["shop"]) + Decimal(balances["customers"]) == 0
    net = {order: Decimal("0") for order in orders}
    for entry in ledger["entries"]:
        if entry["order"] in net:
            net[entry["order"]] += Decimal(entry["amount"]) * (1 if entry["kind"] == "charge" else -1)
    assert net == {order: Decimal(ledger["orders"][order]) for order in orders}


def test_connections_are_kept_open(bank: Desk, order: str) -> None:
    """Many requests on one connection."""
    connection = http.client.HTTPConnection(bank.url.removeprefix("http://"), timeout=5)
    try:
        for _ in range(50):
            connection.request("GET", f"/charges?key={order}")
            assert connection.getresponse().read()
            connected = connection.sock
            assert connected is not None
    finally:
        connection.close()


def test_the_store_outlives_the_process(tmp_path: Any) -> None:
    """With a file as its store, a bank that is killed still knows its charges and keys."""
    with ProcessGroup() as processes:
        options = ("--store", str(tmp_path / "bank.sqlite"), "--port-file", str(tmp_path / "port"))
        bank = open_bank(processes, *options)
        assert bank.url.endswith(":" + (tmp_path / "port").read_text())
        before = charge(bank, "o")
        processes.processes[-1].kill()
        assert charge(open_bank(processes, *options), "o") == before


def test_it_ends_when_asked_though_requests_hang() -> None:
    """SIGTERM ends the bank at once, with a charge in flight."""
    with ProcessGroup() as processes:
        bank = open_bank(processes)
        bank.script({"fault": "hold"})
        with ThreadPoolExecutor(1) as pool:
            hanging = pool.submit(charge, bank, "o")
            wait_until(bank.in_flight)
            processes.processes[-1].send_signal(signal.SIGTERM)
            assert processes.processes[-1].wait(3) == 0
            with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
                hanging.result(3)
