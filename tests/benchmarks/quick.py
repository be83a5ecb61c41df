"""`make bench-quick`: the main ratios in under 90 seconds. Prints a table, writes var/bench-quick.json.

Exit status: 0 every floor held, 1 a floor was missed (the table says which), 2 something did not run.
"""

from __future__ import annotations

import json
import sys
import time

from tests.benchmarks.peer_env import QUICK, peer_python
from tests.benchmarks.report import Bound, Comparison, as_json, compare, exit_status, table
from tests.benchmarks.runner import Places, Script, about, end_at_sigterm, measure, places
from tests.benchmarks.scripts import ROOT, NotRun

ROUNDS = 3
LIMIT = 12.0  # seconds that the measured part of one script may take
PATIENCE = 30.0  # seconds for one script with all its processes
RESULT = ROOT / "var" / "bench-quick.json"
EMBEDDED = Comparison(
    key="embedded",
    what="3 external no-op steps, embedded worker : dbos start_workflow",
    ours="ours.embedded",
    peer="dbos.start_workflow",
    bound=Bound.AT_LEAST,
    floor=20,
)
CELERY = Comparison(
    key="celery",
    what="the same over Celery + Redis, 2 processes : bare Celery chain of 3",
    ours="ours.celery",
    peer="celery.chain",
    bound=Bound.AT_LEAST,
    floor=10,
)
START = Comparison(
    key="start",
    what="time of a transaction of 2 inserts, with start() : without",
    ours="ours.with_start",
    peer="django.without_start",
    bound=Bound.AT_MOST,
    floor=1.6,
)
COMPARISONS = (EMBEDDED, EMBEDDED.with_starts(), CELERY, START)


def scripts(at: Places) -> tuple[Script, ...]:
    """All scripts of one round; each side of a comparison next to the other."""
    return (
        at.peer("dbos_steps.py", at.peer_dsn, 300, LIMIT, measures=("dbos.start_workflow",)),
        at.ours("ours_embedded", 1500, LIMIT, measures=("ours.embedded",)),
        at.peer("celery_chain.py", 400, LIMIT, measures=("celery.chain",)),
        at.ours("ours_celery", 1500, LIMIT, measures=("ours.celery",)),
        at.ours("ours_start", 500, measures=("ours.with_start", "django.without_start")),
    )


def main() -> int:
    """Install the peers, start the servers, measure, report."""
    end_at_sigterm()
    try:
        python = peer_python(QUICK)
    except NotRun as error:
        print(f"NOT RUN: {error}")
        return 2
    begun = time.monotonic()
    with places(python) as at:
        rounds, problems = measure(scripts(at), rounds=ROUNDS, patience=PATIENCE)
    outcomes = [compare(one, rounds, problems) for one in COMPARISONS]
    print(table(outcomes))
    print(f"{ROUNDS} interleaved rounds, {time.monotonic() - begun:.0f} s; details in {RESULT.relative_to(ROOT)}")
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(as_json(outcomes, rounds, about(ROUNDS)), indent=2) + "\n")
    return exit_status(outcomes)


if __name__ == "__main__":
    sys.exit(main())
