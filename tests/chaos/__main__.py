"""`python -m tests.chaos [--seed N] [--minutes M | --short]`: one run; ends with 1 if anything is wrong."""

from __future__ import annotations

import argparse
import os
import random
import sys

from tests.chaos.mutants import KILLED_BY


def main() -> int:
    """Run, and print how it went."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="of an earlier run, to repeat it")
    parser.add_argument("--minutes", type=float, default=3.0, help="for which it rages")
    parser.add_argument("--short", action="store_true", help="the run of the tests: some seconds")
    parser.add_argument(
        "--mutant", choices=sorted(KILLED_BY), help="take this rule out of the engine: it has to be noticed"
    )
    given = parser.parse_args()
    if given.mutant:
        os.environ["CHAOS_MUTANT"] = given.mutant
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    again = "--short" if given.short else f"--minutes {given.minutes:g}"
    print(f"chaos: seed {seed}; the same again: python -m tests.chaos --seed {seed} {again}", flush=True)

    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.chaos.settings"
    import django

    django.setup()
    from django.db import connections

    from tests.chaos.run import SHORT, Size, run
    from tests.settings import database_from_url

    def connect(url: str) -> None:
        connections.settings["default"] |= database_from_url(url)

    report = run(seed, SHORT if given.short else Size.of(given.minutes), connect)
    print(report)
    return int(bool(report.wrong))


if __name__ == "__main__":
    sys.exit(main())
