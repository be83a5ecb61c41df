"""What is left to who may write to the broker: workers are disturbed, nothing is lost. No other worker runs here."""

from __future__ import annotations

import pytest
import redis as redis_client

from tests.relay.conftest import PlantMaker, _report, new_plant, own_redis, plant_template
from tests.relay.plant import SHORT
from tests.relay.sagas import Job
from tests.security.forging import send_raw, task_body

pytestmark = pytest.mark.full
__all__ = ["_report", "new_plant", "own_redis", "plant_template"]
GATE = 8


def test_a_forged_time_limit_is_a_failure_like_any_other(new_plant: PlantMaker) -> None:
    """Celery lets a message say after how many seconds its body is interrupted, and its process killed.

    The attempt has failed, or its lease ends and another worker takes over; the body ends once.
    """
    with new_plant(SHORT) as plant:
        worker = plant.worker("quick")
        plant.start("cut", job=Job(gate=GATE))
        ((row, token),) = plant.fetch(
            "update sagas_outbox set holder = 'relay:gone', publishes = 1,"
            " due_at = clock_timestamp() + interval '1 hour' returning id, token"
        )
        with plant.gate(GATE):
            send_raw(plant, task_body(v=1, store="default", rows=[[row, token]]), timelimit=[2, 1])
            worker.wait_for_output("time limit (1s) exceeded", 30)
        plant.relay()
        plant.wait_until_completed("cut")
        assert [what for what, *_ in plant.notes("cut")].count("after the gate") == 1


def test_a_message_that_celery_cannot_read_ends_workers_until_it_is_removed(new_plant: PlantMaker) -> None:
    """It ends the worker that meets it before we are asked anything, and comes again.

    Emptying the broker is the remedy: nothing is lost with it.
    """
    with new_plant() as plant:
        plant.relay()
        victim = plant.worker("quick")
        send_raw(plant, b"{}")
        victim.wait_for_output("Unrecoverable error", 30)
        victim.kill()
        plant.start("waits")
        with redis_client.Redis.from_url(plant.broker) as client:
            client.flushall()
        plant.worker("quick")
        plant.wait_until_completed("waits")
        assert plant.attempts("waits") == [("step_done", 1), ("completed", 0)]
