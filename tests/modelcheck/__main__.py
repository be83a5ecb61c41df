"""`python -m tests.modelcheck [--faults N]`: check everything, show the mutations, write the pages in the docs.

With `--faults` the sagas are checked with so many faults in one run instead, which may take long.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from tests.modelcheck import checked
from tests.modelcheck.check import Report, Violation, check
from tests.modelcheck.document import PLACE, render
from tests.modelcheck.everything import MUTATIONS, scenarios
from tests.modelcheck.mutations import Mutation

MOST = 20_000_000  # worlds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.modelcheck", description=__doc__)
    parser.add_argument("--faults", type=int, help="faults in one run")
    faults = parser.parse_args().faults
    reports: list[Report] = []
    found: list[tuple[Mutation, Violation]] = []
    for scenario in scenarios():
        report = check(scenario if faults is None else replace(scenario, faults=faults), limit=MOST)
        reports.append(report)
        print(report, *report.violations.values(), sep="\n", flush=True)
    if faults is not None:
        return
    for mutation in MUTATIONS:
        with mutation.applied() as scenario:
            report = check(scenario)
        noticed = list(report.violations.values())[:1]
        found += [(mutation, violation) for violation in noticed]
        print(f"\n{mutation.name} ({mutation.because}):", *[str(each) for each in noticed] or ["NOT NOTICED"])
    PLACE.write_text(render())
    checked.PLACE.write_text(checked.render(reports, found))
    print(f"\nwrote {PLACE} and {checked.PLACE}")


if __name__ == "__main__":
    main()
