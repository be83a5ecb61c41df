"""What in a Celery app would defeat the outbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from celery import Celery, current_app

TASK = "sagas.run"
REDIS = ("redis:", "rediss:", "valkey:", "valkeys:", "sentinel:")
TIMEOUTS = ("socket_timeout", "socket_connect_timeout")


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One misconfiguration."""

    id: str
    message: str
    hint: str
    fatal: bool = False


def problems(app: Celery | None = None) -> list[Problem]:
    """Every problem of the current app, or of the given one."""
    conf = (app or current_app).conf
    return [problem for look in (_eager, _annotations, _content, _timeouts) if (problem := look(conf)) is not None]


def _eager(conf: Any) -> Problem | None:
    if not conf.task_always_eager:
        return None
    return Problem(
        id="sagas.E010",
        fatal=True,
        message="task_always_eager runs steps inside the relay, without a worker",
        hint="Leave it off; where there is no broker, run `manage.py sagas worker` without 'sagas_celery'. "
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
