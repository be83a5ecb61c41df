"""What `sagas doctor` says about a Celery app."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from celery import Celery

from sagas.doctor import Level, Problem
from sagas.registry import registry
from sagas.settings import Settings
from sagas_celery.checks import problems

PREFETCHED: Final = 4  # Celery's default


def misconfigured(app: Celery | None = None, *, deploy: bool = False) -> Iterator[Problem]:
    """What in an app would defeat the outbox, or hurt one day, given the queues that steps and compensations name.

    Args:
        app: the Celery app; None: the current one.
        deploy: also what matters in production only.
    """
    steps = [step for saga in registry.definitions() for step in saga.plan.steps]
    queues = {step.queue for step in steps} | {step.undo.queue for step in steps if step.undo is not None}
    for each in problems(app, queues=queues, deploy=deploy):
        level = Level.ERROR if each.fatal else Level.WARNING
        yield Problem(id=each.id, level=level, message=each.message, hint=each.hint)


def examine(app: Celery, settings: Settings, paces: Mapping[tuple[str, str, str], float]) -> Iterator[Problem]:
    """Everything about an app that would defeat the outbox, or make it publish in vain.

    Args:
        app: the app that workers and relays run.
        settings: of the store.
        paces: seconds that bodies take, by saga name, step and direction.
    """
    yield from misconfigured(app)
    given = app.conf.worker_prefetch_multiplier
    prefetched = PREFETCHED if given is None else given
    slow = max(paces.items(), key=lambda item: item[1], default=None)
    if slow is None:
        return
    (name, step, _), seconds = slow
    if prefetched == 0 or prefetched * seconds > settings.publish_window:
        many = "any number of messages" if prefetched == 0 else f"{prefetched} messages"
        yield Problem(
            id="prefetch", level=Level.WARNING,
            message=f"a worker process takes {many} ahead, and step {step} of {name} takes {seconds:.1f} s: they wait "
            f"longer than PUBLISH_WINDOW ({settings.publish_window:g} s), and are published again meanwhile",
            hint="Set worker_prefetch_multiplier = 1, give slow steps a queue of their own, or widen the window.",
        )  # fmt: skip
