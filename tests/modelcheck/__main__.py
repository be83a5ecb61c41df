"""`python -m tests.modelcheck [--faults N]`: check everything, show the mutations, write the page in the docs.

With `--faults` the sagas are checked with so many faults in one run instead, which may take long.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from tests.modelcheck.check import check
from tests.modelcheck.document import PLACE, render
from tests.modelcheck.mutations import MUTATIONS
from tests.modelcheck.sagas import scenarios

MOST = 20_000_000  # worlds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.modelcheck", description=__doc__)
    parser.add_argument("--faults", type=int, help="faults in one run")
    faults = parser.parse_args().faults
    for scenario in scenarios():
        report = check(scenario if faults is None else replace(scenario, faults=faults), limit=MOST)
        print(report, *report.violations.values(), sep="\n", flush=True)
    if faults is not None:
        return
    for mutation in MUTATIONS:
        with mutation.applied() as scenario:
            report = check(scenario)
        found = next(iter(report.violations.values()), "NOT NOTICED")
        print(f"\n{mutation.name} ({mutation.because}): {found}")
    PLACE.write_text(render())
    print(f"\nwrote {PLACE}")


if __name__ == "__main__":
    main()
