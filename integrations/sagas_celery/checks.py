"""What in a Celery app would defeat the outbox."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from celery import Celery, current_app

TASK = "sagas.run"
REDIS = ("redis:", "rediss:", "valkey:", "valkeys:", "sentinel:")
RABBIT = ("amqp:", "amqps:", "pyamqp:")
TIMEOUTS = ("socket_timeout", "socket_connect_timeout")
NO_QUEUE_NAMED = "default"  # the queue of steps that name none: whichever the app's workers serve without -Q


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One misconfiguration."""

    id: str
    message: str
    hint: str
    fatal: bool = False


Look = Callable[[Any], Problem | None]


def problems(app: Celery | None = None, *, queues: Iterable[str] = (), deploy: bool = False) -> list[Problem]:
    """Every problem of the current app, or of the given one.

    Args:
        app: the Celery app; None: the current one.
        queues: those that steps name.
        deploy: also what matters in production only.
    """
    conf = (app or current_app).conf
    looks: list[Look] = [_eager, _annotations, _content, _timeouts, _confirms, partial(_unlisted, set(queues))]
    if deploy:
        looks.append(_broker)
    return [problem for look in looks if (problem := look(conf)) is not None]


def _eager(conf: Any) -> Problem | None:
    if not conf.task_always_eager:
        return None
    return Problem(
        id="sagas.E010",
        fatal=True,
        message="task_always_eager runs steps inside the relay, without a worker",
        hint="Leave it off; where there is no broker, run `sagas worker`, which needs no Celery (in Django without "
        "'sagas_celery'). "
        "Test settings that run no relay may list sagas.E010 in SILENCED_SYSTEM_CHECKS.",
    )


def _annotations(conf: Any) -> Problem | None:
    given = conf.task_annotations or ()
    for each in given if isinstance(given, list | tuple) else [given]:
        name = next((name for name in ("*", TASK) if name in each), None) if isinstance(each, dict) else "*"
        if name is not None:
            return Problem(
                id="sagas.E011",
                fatal=True,
                message=f"task_annotations[{name!r}] changes the options of {TASK}, such as its time limits",
                hint="Annotate your own tasks by name; the saga task must keep its own options.",
            )
    return None


def _content(conf: Any) -> Problem | None:
    if {"json", "application/json"} & set(conf.accept_content or ()):
        return None
    return Problem(
        id="sagas.E012",
        fatal=True,
        message="accept_content leaves out json: workers would refuse every saga message",
        hint="Add 'json' to accept_content.",
    )


def _confirms(conf: Any) -> Problem | None:
    """RabbitMQ says that it has a message where it is asked to, as relays do unless the app says no."""
    addresses = conf.broker_write_url or conf.broker_url or ()
    urls = [addresses] if isinstance(addresses, str) else list(addresses)
    options = conf.broker_transport_options or {}
    if options.get("confirm_publish", True) or not any(url.startswith(RABBIT) for url in urls):
        return None
    return Problem(
        id="sagas.W013",
        message="broker_transport_options switches confirm_publish off: a message may count as sent that RabbitMQ "
        "never got",
        hint='Set broker_transport_options = {"confirm_publish": True}, or leave it out: relays ask for it.',
    )


def _timeouts(conf: Any) -> Problem | None:
    """A Redis that accepts a connection and never answers holds up whoever talks to it, for ever."""
    addresses = conf.broker_url or ()
    urls = [addresses] if isinstance(addresses, str) else list(addresses)
    options = conf.broker_transport_options or {}
    missing = [name for name in TIMEOUTS if not options.get(name)]
    if not missing or not any(url.startswith(REDIS) for url in urls):
        return None
    return Problem(
        id="sagas.W010",
        message=f"broker_transport_options lacks {' and '.join(missing)}: workers wait for ever for a Redis that hangs",
        hint='Set broker_transport_options = {"socket_timeout": 10, "socket_connect_timeout": 5}.',
    )


def _unlisted(queues: set[str], conf: Any) -> Problem | None:
    """Celery publishes to no queue that it may not make up."""
    if conf.task_create_missing_queues or not conf.task_queues:
        return None
    listed = {queue if isinstance(queue, str) else queue.name for queue in conf.task_queues}
    missing = sorted(queues - listed - {NO_QUEUE_NAMED})
    if not missing:
        return None
    return Problem(
        id="sagas.W011",
        message=f"steps name queues that task_queues does not list: {', '.join(missing)}",
        hint="Add them to task_queues, and a worker that serves them, or name others in the steps (queue=...).",
    )


def _broker(conf: Any) -> Problem | None:
    """A broker inside of the process reaches no worker."""
    urls = [conf.broker_url] if isinstance(conf.broker_url, str) else list(conf.broker_url or ())
    if not any(url.startswith("memory:") for url in urls):
        return None
    return Problem(
        id="sagas.W012",
        message="broker_url is memory://, which no other process can reach: what a relay publishes is lost",
        hint="Set broker_url to a Redis or RabbitMQ, or run `sagas worker`, which needs no broker.",
    )
