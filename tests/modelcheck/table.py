"""The table in the docs: what a provider offers, and what is then guaranteed. Every cell is found out by the check."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from tests.modelcheck.check import Report, Violation, check
from tests.modelcheck.invariants import TWICE
from tests.modelcheck.provider import Provider
from tests.modelcheck.sagas import ALL, ASKED, KEYS, NOTHING, ONCE, TOMBSTONES, TWO, WHATEVER, plan, step
from tests.modelcheck.scenario import Late, Scenario

KINDS: Final = frozenset({"timeout", "freeze", "refusal"})


@dataclass(frozen=True)
class Line:
    """One line of the table: a provider, and whether the compensation accepts UNKNOWN."""

    provider: Provider
    accepts: bool

    def scenario(self, late: Late, *, faults: int, cancels: int = 0, **options: Any) -> Scenario:
        """A step as one would declare it for this provider, in the worlds that tell providers apart."""
        declared: dict[str, Any] = {"has_resolve": self.provider.resolve, **options}
        if self.accepts:
            declared |= WHATEVER
        return Scenario(
            name=f"{self.provider}; {late}", plans=(plan(step("charge", **declared)),), provider=self.provider,
            late=late, faults=faults, kinds=KINDS, cancels=cancels,
        )  # fmt: skip

    @cached_property
    def violations(self) -> dict[Late, dict[str, Violation]]:
        """What can be broken, from the hardest assumption to the mildest, as far as there is anything."""
        found: dict[Late, dict[str, Violation]] = {}
        for late in Late:
            ways = (self.scenario(late, faults=2), self.scenario(late, faults=1, cancels=1))
            found[late] = shortest([check(way, keep_going=True) for way in ways])
            if not found[late]:
                break
        return found

    def holds(self, rule: str) -> str:
        """The hardest assumption under which a rule is never broken."""
        return next((_WHEN[late] for late, broken in self.violations.items() if rule not in broken), "no")

    @cached_property
    def lost_answer(self) -> str:
        """What becomes of a step whose one attempt timed out, if nothing else goes wrong."""
        report = check(self.scenario(Late.SETTLING, faults=1, retry=ONCE), keep_going=True)
        return "a person decides" if report.ends["parked"] else _UNDONE[self.provider.resolve]


def shortest(reports: list[Report]) -> dict[str, Violation]:
    """Of each rule that was broken a shortest trace."""
    found: dict[str, Violation] = {}
    for violation in (each for report in reports for each in report.violations.values()):
        if violation.rule not in found or len(violation.trace) < len(found[violation.rule].trace):
            found[violation.rule] = violation
    return found


_UNDONE: Final = {True: "`resolve` tells", False: "it is undone"}
_WHEN: Final = {
    Late.EVER: "yes, however late a request lands",
    Late.SETTLING: "if requests land before settling",
    Late.LOOK: "if requests land before anyone looks",
}
LINES: Final = (
    Line(ALL, accepts=True),
    Line(TOMBSTONES, accepts=True),
    Line(ASKED, accepts=True),
    Line(KEYS, accepts=True),
    Line(ASKED, accepts=False),
    Line(KEYS, accepts=False),
    Line(Provider(keys=False, tombstones=False, resolve=True), accepts=True),
    Line(Provider(keys=False, tombstones=False, resolve=True), accepts=False),
    Line(Provider(keys=False, tombstones=False, resolve=False), accepts=False),
)


@dataclass(frozen=True)
class Redo:
    """An operator redoes a step whose one attempt brought no answer, so that its saga had parked."""

    provider: Provider
    guarded: bool = False  # the step guards its effects

    def scenario(self, *, blind: bool) -> Scenario:
        """The worlds that tell these apart."""
        return Scenario(
            name=f"redo; {self.provider}", plans=(plan(step("charge", retry=ONCE)),), provider=self.provider, redos=1,
            late=Late.EVER, faults=1, kinds=KINDS, effects=TWO if self.guarded else {}, blind=blind,
        )  # fmt: skip

    @cached_property
    def violations(self) -> dict[str, Violation]:
        """What can be broken by an operator who has not made sure."""
        return check(self.scenario(blind=True), keep_going=True).violations

    def holds(self, *, blind: bool) -> str:
        """Whether the effect has happened exactly once in the end."""
        found = self.violations if blind else check(self.scenario(blind=False), keep_going=True).violations
        return "no" if TWICE in found else "yes"


REDOS: Final = (Redo(KEYS), Redo(NOTHING), Redo(KEYS, guarded=True))
