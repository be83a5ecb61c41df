"""Every metric there is: stable names, which dashboards and alerts may count on. docs/metrics.md has the same list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sagas.events import Kind
from sagas.tally import DEDUPE, EXPIRED, REPAIRS, RETRIES, STALE, UNKNOWN


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One metric. A counter's name is without `_total`, which Prometheus adds."""

    name: str
    kind: str  # "counter", "gauge" or "histogram"
    help: str
    labels: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()  # what of `sagas_tally` it adds up

    @property
    def shown(self) -> str:
        """The name that a query uses."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _counter(name: str, help: str, *counts: str, step: bool = False, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(
        name=f"sagas_{name}", kind="counter", help=help, counts=counts,
        labels=labels or (("name", "step") if step else ("name",)),
    )  # fmt: skip


def _gauge(name: str, help: str, *labels: str) -> Metric:
    return Metric(name=f"sagas_{name}", kind="gauge", help=help, labels=labels)


STARTED: Final = _counter("started", "Sagas started")
ENDED: Final = _counter("ended", "Sagas ended, by how", labels=("name", "status"))
SECONDS: Final = Metric(
    name="sagas_step_seconds", kind="histogram", labels=("name", "step", "direction"),
    help="How long bodies of steps (do) and compensations (undo) took",
)  # fmt: skip
COUNTERS: Final[tuple[Metric, ...]] = (
    _counter("parked", "Times that a saga parked: a person has to decide", Kind.PARKED),
    _counter("compensating", "Sagas that turned back", Kind.COMPENSATING),
    _counter("steps_done", "Steps done", Kind.STEP_DONE, step=True),
    _counter("step_failures", "Attempts of steps that failed", Kind.STEP_FAILED, step=True),
    _counter("step_retries", "Failures of steps and compensations that are tried again", RETRIES, step=True),
    _counter("undos_done", "Compensations done", Kind.UNDO_DONE, step=True),
    _counter("undo_failures", "Attempts of compensations that failed", Kind.UNDO_FAILED, step=True),
    _counter("unknown_outcomes", "Attempts whose outcome nobody knew", UNKNOWN, step=True),
    _counter("late_answers", "Answers that came after their step was undone", Kind.LATE_ANSWER, step=True),
    _counter("dedupe_hits", "Steps answered by the dedupe table instead of a body", DEDUPE, step=True),
    _counter("claim_expiries", "Work begun again because the claim of its worker had ended", EXPIRED, step=True),
    _counter("manual_repairs", "Requests and signals of persons that were applied", REPAIRS),
)
STALE_CLAIMS: Final = Metric(
    name="sagas_stale_claims", kind="counter", help="Rows that a message named and that were gone or taken by then",
    counts=(STALE,),
)  # fmt: skip
OPEN: Final = _gauge("open", "Sagas that have not ended, by status", "name", "status")
WAITING: Final = _gauge("waiting", "Sagas with a step that waits for a signal or a time", "name")
FAILING: Final = _gauge("failing", "Sagas in which a step has failed and others beside it come to their end", "name")
PARKED: Final = _gauge("parked_now", "Sagas that are parked", "name")
PAUSED: Final = _gauge("paused_now", "Sagas that are paused, each for itself", "name")
STUCK: Final = _gauge("stuck", "Sagas that are stuck, by why; counted up to 10,000", "name", "reason")
OLDEST: Final = _gauge("oldest_open_seconds", "Age of the oldest saga that has not ended", "name")
DUE: Final = _gauge("queue_due", "Outbox rows that are due and held by nobody", "queue")
LATER: Final = _gauge("queue_later", "Outbox rows that are not due yet: timers, backoffs", "queue")
PUBLISHED: Final = _gauge("queue_published", "Outbox rows published and not begun", "queue")
UNSERVED: Final = _gauge(
    "queue_unserved", "Outbox rows published three times or more, while no worker has any of their queue", "queue"
)
RUNNING: Final = _gauge("queue_running", "Outbox rows that workers hold", "queue")
EXPIRED_NOW: Final = _gauge("queue_expired", "Outbox rows whose worker's claim has ended", "queue")
QUEUE_AGE: Final = _gauge("queue_oldest_seconds", "For how long the oldest due row has been due", "queue")
RELAY_LAG: Final = _gauge(
    "relay_lag_seconds", "For how long the oldest row has been due that no relay or worker ever took, and should have",
    "queue",
)  # fmt: skip
MESSAGES_WAITING: Final = _gauge("messages_waiting", "Plain messages that are not sent yet", "destination")
MESSAGES_DEAD: Final = _gauge(
    "messages_dead", "Plain messages that were given up: somebody has to decide", "destination"
)
MESSAGES_AGE: Final = _gauge(
    "messages_oldest_seconds", "For how long the oldest plain message has been due", "destination"
)
TIMER_LAG: Final = _gauge("timer_lag_seconds", "How late the timer is that should have gone off first")
SCHEDULER_LAG: Final = _gauge("scheduler_lag_seconds", "How late the schedule is that should have ticked first")
PROCESSES: Final = _gauge(
    "processes", "Relays and workers: alive, missing without a word, alive and failing", "kind", "state"
)
ARCHIVED: Final = _gauge("archived", "Sagas in the archive, estimated")
MEASURED: Final = _gauge("measure_seconds", "How long it took to measure all of this")

METRICS: Final[tuple[Metric, ...]] = (
    STARTED, ENDED, *COUNTERS, STALE_CLAIMS, SECONDS, OPEN, WAITING, FAILING, PARKED, PAUSED, STUCK, OLDEST, DUE, LATER,
    PUBLISHED, UNSERVED, RUNNING, EXPIRED_NOW, QUEUE_AGE, RELAY_LAG, MESSAGES_WAITING, MESSAGES_DEAD, MESSAGES_AGE,
    TIMER_LAG, SCHEDULER_LAG, PROCESSES, ARCHIVED, MEASURED,
)  # fmt: skip
