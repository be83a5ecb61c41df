"""What was explored, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sagas.engine import SagaRun
from sagas.testing.explorer.script import Moment

MOST_NAMED = 20  # other failing stories that a report lists


@dataclass(frozen=True, kw_only=True)
class Story:
    """One run of the saga under some faults.

    Attributes:
        name: the faults; what `only=` takes to run just this story again.
        moments: what happened, in order.
        problems: what is wrong with it; empty: nothing.
        run: the saga in the end; None: it could not be started.
        faults: how many faults struck.
    """

    name: str
    moments: tuple[Moment, ...]
    problems: tuple[str, ...]
    run: SagaRun | None
    faults: int

    @property
    def failed(self) -> bool:
        """Whether something is wrong with it."""
        return bool(self.problems)

    @property
    def length(self) -> tuple[int, int]:
        """What makes it longer than another: faults first, then lines."""
        return self.faults, len(self.moments)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        told = ""
        for number, moment in enumerate(self.moments, 1):
            if moment.text == told and not moment.notes:
                yield f"{number:>3}. the same again"
                continue
            told = moment.text
            yield f"{number:>3}. {told}"
            yield from (f"       - {line}" for line in moment.notes)
        for problem in self.problems:
            first, *more = problem.splitlines() or [""]
            yield f"  => {first}"
            yield from (f"     {line}" for line in more)


@dataclass(kw_only=True)
class Exploration:
    """Everything that was explored.

    Attributes:
        saga: the name of the class.
        stories: in the order in which they were run, shortest first.
        left_out: names of stories that were not run because a bound was reached.
        stopped_by: that bound, in words.
    """

    saga: str
    stories: list[Story] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    stopped_by: str = ""

    @property
    def failures(self) -> list[Story]:
        """Stories with which something is wrong, shortest first."""
        return sorted((story for story in self.stories if story.failed), key=lambda story: story.length)

    def story(self, name: str) -> Story:
        """One story by its name.

        Raises:
            KeyError: it was not run; the message lists those that were.
        """
        for story in self.stories:
            if story.name == name:
                return story
        raise KeyError(f"no story {name!r}; there are: {'; '.join(story.name for story in self.stories)}")

    def raise_for_failures(self) -> None:
        """Do nothing if every story went well.

        Raises:
            ExplorationFailed: one did not; the message tells the shortest.
        """
        if self.failures:
            raise ExplorationFailed(self)

    def __str__(self) -> str:
        failures = self.failures
        if not failures:
            return f"{self.saga}: {len(self.stories)} stories, nothing wrong{self._cut()}"
        first, *others = failures
        lines = [
            f"{self.saga}: {len(failures)} of {len(self.stories)} stories went wrong{self._cut()}. The shortest:",
            "", f"  {first.name}", "", str(first), "",
            f"Run it alone: explore({self.saga}, ..., only={first.name!r})",
        ]  # fmt: skip
        if others:
            lines += ["", "The others:", *(f"  {each.name}: {_short(each)}" for each in others[:MOST_NAMED])]
        if len(others) > MOST_NAMED:
            lines.append(f"  and {len(others) - MOST_NAMED} more")
        return "\n".join(lines)

    def _cut(self) -> str:
        return f" ({len(self.left_out)} left out: {self.stopped_by})" if self.left_out else ""


class ExplorationFailed(AssertionError):
    """A saga does not bear some fault. The message tells the shortest story in which it does not.

    Args:
        exploration: everything that was explored.
    """

    def __init__(self, exploration: Exploration) -> None:
        super().__init__(str(exploration))
        self.exploration = exploration


def _short(story: Story) -> str:
    return (story.problems[0].splitlines() or [""])[0][:120]
