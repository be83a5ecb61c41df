"""Every interleaving of small sagas over the real machine: nothing breaks, and what is taken away is missed."""

from __future__ import annotations

import pytest

from tests.modelcheck import checked
from tests.modelcheck.check import check
from tests.modelcheck.document import PLACE, render
from tests.modelcheck.everything import MUTATIONS, scenarios
from tests.modelcheck.mutations import Mutation
from tests.modelcheck.scenario import Scenario
from tests.modelcheck.statements import Rules

EVERY = {each.name: each for each in scenarios()}


@pytest.mark.parametrize("scenario", EVERY.values(), ids=EVERY)
def test_no_interleaving_breaks_a_rule(scenario: Scenario) -> None:
    """Owners, log, leases, a way out of every world, exactly once, net zero: all of it in every world there can be."""
    report = check(scenario)
    assert not report.violations, "\n".join(map(str, report.violations.values()))
    assert report.ends, report
    print(report)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_missing_rule_is_noticed(mutation: Mutation) -> None:
    """With all rules the scenario is clean; without this one it is not, and a short trace says how."""
    clean = check(mutation.scenario(Rules()))
    assert not clean.violations, "\n".join(map(str, clean.violations.values()))
    with mutation.applied() as scenario:
        report = check(scenario)
    assert report.violations, f"not noticed: {mutation.name}"
    for violation in report.violations.values():
        print(violation)
        assert 0 < len(violation.trace) <= 20, "a trace that one can read"


def test_the_table_in_the_docs_is_what_the_check_finds() -> None:
    """`python -m tests.modelcheck` writes it anew."""
    assert PLACE.read_text() == render()


def test_the_docs_name_all_that_is_checked() -> None:
    """`python -m tests.modelcheck` writes that page anew, with the counts of the day."""
    page = checked.PLACE.read_text()
    assert not [name for name in checked.names(scenarios(), MUTATIONS) if name not in page]
