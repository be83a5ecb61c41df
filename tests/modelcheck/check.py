"""Breadth-first through every world that can come about: the first way found to break a rule is a shortest one."""

from __future__ import annotations

import gc
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.modelcheck.actions import moves
from tests.modelcheck.invariants import broken
from tests.modelcheck.scenario import Scenario
from tests.modelcheck.world import World, key_of

STUCK: Final = "no end can be reached any more, even if nothing else goes wrong"


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A rule that can be broken, and a shortest way there."""

    rule: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        lines = (f"{number:3}. {line}" for number, line in enumerate(self.trace, 1))
        return "\n".join((self.rule, *lines))


@dataclass(kw_only=True)
class Report:
    """What a check came to."""

    scenario: Scenario
    states: int = 0
    seconds: float = 0.0  # of CPU
    violations: dict[str, Violation] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)  # worlds by where their sagas stand

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {name}" for name, count in sorted(self.ends.items()))
        return f"{self.scenario.name}: {self.states} states, {self.seconds:.1f} s; {ends}"


def check(scenario: Scenario, *, keep_going: bool = False, limit: int = 300_000) -> Report:
    """Explore a scenario.

    Args:
        scenario: what to explore.
        keep_going: go on after a rule is broken, to find all the rules that can be.
        limit: worlds after which it is an error to go on.
    """
    search = _Search(scenario, limit)
    began = time.process_time()
    collects = gc.isenabled()
    gc.disable()  # nothing here is garbage, and looking for it takes a third of the time
    try:
        search.run(keep_going)
    finally:
        if collects:
            gc.enable()
    search.report.seconds = time.process_time() - began
    return search.report


class _Search:
    def __init__(self, scenario: Scenario, limit: int) -> None:
        self.scenario, self.limit = scenario, limit
        self.report = Report(scenario=scenario)
        self.numbers: dict[World, int] = {}
        self.parents: list[tuple[int, str]] = []
        self.leads_here: list[list[int]] = []  # by number of a world: from where one gets there without a fault
        self.ends: list[int] = []
        self.queue: deque[tuple[int, World]] = deque()

    def run(self, keep_going: bool) -> None:
        self._add(self.scenario.start(), -1, "")
        while self.queue:
            number, world = self.queue.popleft()
            for label, after, free in moves(self.scenario, world):
                reached = self._add(after, number, label)
                if free:
                    self.leads_here[reached].append(number)
                if self.report.violations and not keep_going:
                    return
        self._stuck()

    def _add(self, world: World, parent: int, label: str) -> int:
        key = key_of(world)
        number = self.numbers.get(key)
        if number is not None:
            return number
        number = self.numbers[key] = len(self.numbers)
        assert number < self.limit, f"{self.scenario.name}: more than {self.limit} states"
        self.report.states += 1
        self.parents.append((parent, label))
        self.leads_here.append([])
        for rule in broken(self.scenario, world):
            self._violated(rule, number)
        if self.scenario.ended(world):
            self.ends.append(number)
        self.report.ends["/".join(self.scenario.status(world, which) for which in range(len(world.sagas)))] += 1
        if not world.broken:
            self.queue.append((number, world))
        return number

    def _violated(self, rule: str, number: int) -> None:
        if rule not in self.report.violations:
            self.report.violations[rule] = Violation(rule=rule, trace=tuple(self._trace(number)))

    def _trace(self, number: int) -> list[str]:
        labels: list[str] = []
        while number > 0:
            number, label = self.parents[number]
            labels.append(label)
        return labels[::-1]

    def _stuck(self) -> None:
        """From every world an end must be in reach by moves that are no faults: search backwards from the ends."""
        found = set(self.ends)
        queue = deque(self.ends)
        while queue:
            for before in self.leads_here[queue.popleft()]:
                if before not in found:
                    found.add(before)
                    queue.append(before)
        for number in self._unreached(found):
            self._violated(STUCK, number)

    def _unreached(self, found: set[int]) -> Iterator[int]:
        return (number for number in range(len(self.parents)) if number not in found)
