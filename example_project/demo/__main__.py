"""Run the demo: `python -m example_project.demo`. Exit code 0 only if every fault hit and every promise was kept."""

from __future__ import annotations

import argparse
import os
import sys

from example_project.demo.terminal import end_on_signals, say


def main() -> int:
    """Show it, and say how it went."""
    options = _options()
    end_on_signals()
    try:
        return _show(options)
    except KeyboardInterrupt:
        say("interrupted; every process was ended")
        return 130


def _show(options: argparse.Namespace) -> int:
    import psycopg
    import redis

    from example_project.demo.blows import Missed
    from example_project.demo.plan import make_plan
    from example_project.demo.show import run
    from example_project.demo.stage import open_stage
    from example_project.demo.summary import all_kept, render
    from sagas.testing.binaries import NoServerFound
    from sagas.testing.processes import ProcessFailed

    try:
        plan = make_plan(orders=options.orders, seed=options.seed)
    except ValueError as error:
        say(f"FAILED: {error}")
        return 2
    say("starting Postgres, Redis and the bank; migrating")
    if os.environ.get("DATABASE_URL"):
        say("DATABASE_URL is set: that Postgres gets a database of the demo's own, which is dropped at the end")
    if os.environ.get("REDIS_URL"):
        say("REDIS_URL is set: that Redis WILL BE EMPTIED")
    try:
        with open_stage() as stage:
            say("Postgres, Redis and the bank run")
            try:
                lines = run(stage, plan, say)
            except (Missed, ProcessFailed):
                print(stage.processes.report(), file=sys.stderr)
                raise
    except (Missed, ProcessFailed, NoServerFound, psycopg.Error, redis.RedisError) as error:
        say(f"FAILED: {error}")
        return 1
    kept = all_kept(lines)
    print(f"\n{render(lines)}\n")
    say(f"{'all promises kept' if kept else 'A PROMISE WAS BROKEN, see NO above'}; nothing is left running")
    return 0 if kept else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m example_project.demo", description=__doc__)
    parser.add_argument("--orders", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
