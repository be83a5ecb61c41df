"""What `make bench` puts side by side, and the floor that each ratio has to hold."""

from __future__ import annotations

from tests.benchmarks.quick import CELERY, EMBEDDED, START
from tests.benchmarks.report import Bound, Comparison, Unit

THREADS = (1, 16, 64)  # that call a slow server at the same time
PAYLOADS = {1_000: (200, 2000), 100_000: (100, 500), 5_000_000: (8, 15)}  # bytes -> how many for the peer, for us


def _rates(key: str, what: str, ours: str, peer: str, floor: float) -> Comparison:
    return Comparison(key=key, what=what, ours=ours, peer=peer, bound=Bound.AT_LEAST, floor=floor)


def _times(key: str, what: str, ours: str, peer: str, floor: float, unit: Unit = Unit.TIME) -> Comparison:
    return Comparison(key=key, what=what, ours=ours, peer=peer, bound=Bound.AT_MOST, floor=floor, unit=unit)


def _latencies(kind: str, what: str) -> tuple[Comparison, ...]:
    """From `start()` to the first line of the step, median and 99th percentile, against budgets."""
    return (
        _times(f"{kind}-ms", f"{what}, median : budget", f"ours.{kind.replace('-', '_')}",
               f"budget.{kind.replace('-', '_')}", 1),
        _times(f"{kind}-p99", f"{what}, p99 : budget", f"ours.{kind.replace('-', '_')}_p99",
               f"budget.{kind.replace('-', '_')}_p99", 1),
    )  # fmt: skip


def _needs(kind: str, what: str) -> tuple[Comparison, ...]:
    """What one process holds, against what is documented."""
    name = kind.replace("-", "_")
    return (
        _times(f"memory-{kind}", f"memory of {what} : bound", f"ours.memory_{name}", f"bound.memory_{name}", 1,
               Unit.MEMORY),
        _times(f"connections-{kind}", f"connections of {what} : bound", f"ours.connections_{name}",
               f"bound.connections_{name}", 1, Unit.PIECES),
    )  # fmt: skip


MEASURED = (
    EMBEDDED,
    _rates("absurd", "the same : absurd worker", "ours.embedded", "absurd.worker", 15),
    _rates("limit", "the same : the same rows by bare SQL in batches", "ours.embedded", "limit.bare_sql", 0.5),
    CELERY,
    _rates("one-row", "the same, one row a message : the same chain", "ours.celery_one", "celery.chain", 2),
    _rates("local", "3 local steps of one ORM insert, Django : dbos datasource", "ours.inserts", "dbos.datasource", 8),
    _rates("alchemy", "the same, SQLAlchemy : dbos datasource", "ours.alchemy", "dbos.datasource", 8),
    _rates("messages", "plain messages to Redis : django-celery-outbox", "ours.messages",
           "django_celery_outbox.relay", 4),
    START,
    _times("idle", "idle, start() to first line, embedded : dbos queue", "ours.idle_embedded", "dbos.idle", 0.05),
    *_latencies("idle-embedded", "idle, embedded"),
    *_latencies("idle-celery", "idle, over Celery"),
    *_latencies("loaded-embedded", "half of full load, embedded"),
    *_latencies("loaded-celery", "half of full load, over Celery"),
    _rates("pruning", "3 no-op steps beside pruning : without", "ours.pruning", "ours.not_pruning", 0.95),
    *_needs("embedded", "sagas worker, 8 threads"),
    *_needs("relay", "a relay"),
    *_needs("celery-child", "a child of a Celery worker"),
    _times("fan-out", "an item of a fan-out of 10,000 : start() and a saga of one step", "ours.fan_out",
           "ours.single", 1.5),
    *(
        _rates(f"http-{threads}", f"a call of 10 ms, {threads} at a time : dbos", f"ours.call.{threads}",
               f"dbos.http.{threads}", 1)
        for threads in THREADS
    ),
    *(
        _rates(f"payload-{size}", f"3 steps that hand on {size:,} bytes : dbos", f"ours.carry.{size}",
               f"dbos.carry.{size}", 1)
        for size in PAYLOADS
    ),
)  # fmt: skip
COMPARISONS = (
    *MEASURED,
    *(one.with_starts() for one in MEASURED if one.peer.startswith("dbos.") and one.bound is Bound.AT_LEAST),
)
