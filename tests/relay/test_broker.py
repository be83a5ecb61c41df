"""A broker that hangs, is down, or forgets. It is only a hint: nothing is lost, and no attempt is burnt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from sagas.testing.processes import Process
from sagas.testing.proxy import BlackHole, Pass, Proxy
from sagas.testing.servers import Redis
from tests.relay.conftest import PlantMaker
from tests.relay.plant import SHORT, Plant, redis_url, wait_until
from tests.relay.sagas import Alone

REFUSED = "in a row); its rows stay due"


@pytest.fixture(scope="module")
def proxy(own_redis: Redis) -> Iterator[Proxy]:
    """Between relays and Redis; the worker talks to Redis directly."""
    with Proxy(own_redis.host, own_redis.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def plant(new_plant: PlantMaker) -> Iterator[Plant]:
    with new_plant(SHORT) as plant:
        yield plant


@pytest.fixture(scope="module")
def worker(plant: Plant) -> Process:
    return plant.worker("quick")


@pytest.fixture(scope="module")
def relay(plant: Plant, proxy: Proxy, own_redis: Redis) -> Process:
    return plant.relay(broker=redis_url(own_redis, proxy.port))


@pytest.fixture(autouse=True)
def _heals(proxy: Proxy) -> Iterator[None]:
    yield
    proxy.fault = Pass()


def assert_done_at_the_first_attempt(plant: Plant, keys: Sequence[str], mark: int) -> None:
    """Delivered once, begun once, and the log knows of one attempt."""
    plant.wait_until_completed(*keys)
    assert [plant.attempts(key)[0] for key in keys] == [("step_done", 1)] * len(keys)
    assert set(plant.begins(mark).values()) == {1}


def refusals(relay: Process) -> int:
    return relay.output().count(REFUSED)


def test_a_broker_that_never_answers_does_not_hang_the_relay(
    plant: Plant, worker: Process, relay: Process, proxy: Proxy
) -> None:
    """Every publish ends in time; each pass tries a new connection, and business goes on meanwhile."""
    plant.start("warm")
    plant.wait_until_completed("warm")  # the relay has a connection, which goes silent now
    mark, accepted, keys = plant.mark(), proxy.accepted, [f"silent-{number}" for number in range(10)]
    proxy.fault = BlackHole()
    plant.start(*keys)
    wait_until(lambda: refusals(relay) >= 2, "two publishes that were given up")
    failed = refusals(relay)
    assert proxy.accepted - accepted >= failed - 1  # the first was the connection it had
    plant.start("meanwhile")
    proxy.fault = Pass()  # what it held back arrives now, beside what is sent anew
    assert_done_at_the_first_attempt(plant, [*keys, "meanwhile"], mark)
    assert relay.poll() is None and worker.poll() is None


def test_a_relay_ends_in_order_while_the_broker_hangs(new_plant: PlantMaker, proxy: Proxy, own_redis: Redis) -> None:
    """What it could not publish is nobody's, and due."""
    proxy.fault = BlackHole()
    with new_plant(SHORT, broker=redis_url(own_redis, proxy.port)) as plant:
        relay = plant.relay()
        plant.start("stranded")
        wait_until(lambda: refusals(relay), "a publish that was given up")
        relay.terminate()
        assert relay.wait(10) == 0, relay.output()
        assert plant.fetch("select holder, publishes, deliveries, token from sagas_outbox") == [(None, 0, 0, 0)]


def test_a_broker_that_is_down_fails_no_business_transaction(
    plant: Plant, worker: Process, relay: Process, own_redis: Redis
) -> None:
    """Sagas wait in Postgres; when it is back, all are delivered, each at its first attempt."""
    mark, failed = plant.mark(), refusals(relay)
    keys = [f"down-{number}" for number in range(10)]
    own_redis.kill()
    try:
        plant.start(*keys)
        wait_until(lambda: refusals(relay) > failed, "a publish that failed")
        plant.start("also")
        assert plant.value("select count(*) from sagas_outbox where deliveries > 0 or token > 0") == 0
    finally:
        own_redis.restart()
    assert_done_at_the_first_attempt(plant, [*keys, "also"], mark)
    assert relay.poll() is None and worker.poll() is None


@pytest.mark.full
def test_a_broker_that_is_wiped_loses_nothing(plant: Plant, worker: Process, relay: Process, own_redis: Redis) -> None:
    """Rows that were published and not begun are published again after the window."""
    mark, keys = plant.mark(), [f"wiped-{number}" for number in range(15)]
    worker.pause()
    plant.start(*keys, saga=Alone)
    untaken = len(keys) - 1  # one may be at the worker
    wait_until(lambda: int(own_redis.command("LLEN", "quick").lstrip(":")) >= untaken, "messages that nobody takes")
    own_redis.flushall()
    worker.resume()
    assert_done_at_the_first_attempt(plant, keys, mark)
    assert plant.publishes(mark) >= len(keys) + untaken
