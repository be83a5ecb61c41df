"""Sagas in a Celery app that somebody uses for other things too: its routes, results and monitors are left alone."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery
from celery.worker.consumer import Consumer
from kombu import Connection

from sagas_celery.checks import TASK
from sagas_celery.publisher import CeleryPublisher
from sagas_celery.tasks import run


def published(queue: str, **conf: Any) -> tuple[str, Any]:
    """Publish one message through an app of these settings; which queue it is in, and the message."""
    address = "memory://manners"
    app = Celery("manners", broker=address, set_as_current=False)
    app.conf.update(conf)
    with Connection(address) as connection:
        names = [queue, "celery", "elsewhere"]
        boxes = {name: connection.SimpleQueue(name) for name in names}
        publisher = CeleryPublisher(app, "default", timeout=5.0)
        try:
            publisher.publish(queue, [(1, 0), (2, 0)])
        finally:
            publisher.reset()
        for name, box in boxes.items():
            if box.qsize():
                message = box.get(timeout=1)
                message.ack()
                return name, message
    raise AssertionError(f"no message in any of {names}")


@pytest.mark.parametrize(
    "routes",
    [
        {},
        {"*": {"queue": "elsewhere"}},
        {TASK: "elsewhere", "sagas.*": {"queue": "elsewhere"}},
        [lambda name, *_, **__: {"queue": "elsewhere"}],
    ],
)
def test_routes_of_the_app_do_not_move_our_messages(routes: Any) -> None:
    """The queue is the step's; a route that moved it would take it from the workers that serve it."""
    name, _ = published("payments", task_routes=routes)
    assert name == "payments"


def test_steps_that_name_no_queue_go_where_the_app_sends_what_has_none() -> None:
    """To `task_default_queue`, which a worker without -Q serves."""
    assert published("default")[0] == "celery"
    assert published("default", task_default_queue="elsewhere")[0] == "elsewhere"


def test_what_a_monitor_sees() -> None:
    """Flower and `inspect` show how many rows a message names, and nothing of a saga."""
    _, message = published("payments")
    assert message.headers["task"] == TASK
    assert (message.headers["argsrepr"], message.headers["kwargsrepr"]) == ("()", "<2 rows>")
    assert message.headers["expires"] is None and message.headers["eta"] is None
    assert message.payload[1] == {"v": 1, "store": "default", "rows": [[1, 0], [2, 0]]}


def test_no_result_backend_is_needed() -> None:
    """Nor written to, where there is one; nor are retries, limits or acknowledgements of the app taken over."""
    _, message = published("payments", result_backend=None, task_ignore_result=False, task_acks_late=True)
    assert message.headers["ignore_result"] is True
    assert run.ignore_result and not run.store_errors_even_if_ignored
    assert run.acks_late is False and run.max_retries == 0


def test_a_limit_of_the_apps_own_tasks_is_none_of_ours() -> None:
    """`task_default_rate_limit` would hold back the steps of all sagas."""
    app = Celery("limited", broker="memory://limited", set_as_current=False)
    app.conf.task_default_rate_limit = "1/m"
    app.finalize()
    consumer = Consumer.__new__(Consumer)
    assert consumer.bucket_for_task(app.tasks[TASK]) is None
