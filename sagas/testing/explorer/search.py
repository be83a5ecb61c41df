"""Which stories there are, in which order they are told, and when to stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sagas import hooks
from sagas.errors import ConfigurationError
from sagas.testing.borrowed import borrow
from sagas.testing.explorer.faults import CANCELS, HAPPENED, Fault, faults_at, title, together
from sagas.testing.explorer.places import Part, Place, SagaClass
from sagas.testing.explorer.script import Script
from sagas.testing.explorer.stage import Stage
from sagas.testing.explorer.story import Exploration, ExplorationFailed
from sagas.testing.explorer.teller import Plan, Teller

Faults = tuple[Fault, ...]

NO_ANSWER = "the explorer lost the answer"


def explore(
    saga: SagaClass,
    input: Any = None,
    *,
    invariant: Callable[..., Any] | None = None,
    setup: Callable[..., Any] | None = None,
    reset: Callable[..., Any] | None = None,
    key: str | None = None,
    using: Any = None,
    error: Callable[[], BaseException] = lambda: TimeoutError(NO_ANSWER),
    only: str | None = None,
    pairs: bool = False,
    commit: bool = False,
    signals: Mapping[str, Any] | None = None,
    stop_after: int | None = None,
    most: int = 2_000,
    within: float = 120.0,
    raises: bool = True,
) -> Exploration:
    """Run a saga under every single fault, and tell the shortest story in which it goes wrong.

    Works in the test's own transaction or without one, on the test's own connection. What a story writes to the
    database is rolled back when it is over; what it does to the world outside is for `reset` or `setup` to put right.

    Args:
        saga: the class.
        input: what it is started with; or a function that makes it, called anew for each story.
        invariant: called with the `SagaRun` at the end of every story that ended: raises, or returns False or a
            text, when something is wrong. May take no argument.
        setup: makes the world before each story, after `reset`.
        reset: puts the world back before each story. Without it and `setup`, plain objects in memory that the
            invariant mentions are copied and put back.
        key: the business key; default: a new one for each story.
        using: as for `start()`.
        error: makes the error of an answer that is lost; default `TimeoutError`.
        only: run just the story of this name.
        pairs: also every second fault after each first one. Takes long.
        commit: let stories commit, and hooks of commits run; then `reset` has to put the user's own tables back.
        signals: what is sent to the saga's waits when it comes to them, by the name of the wait; a wait that is left
            out times out.
        stop_after: so many failing stories are enough; None: all.
        most: stories.
        within: seconds.
        raises: False: return what was found, whatever it is.

    Returns:
        Every story, and which of them failed.

    Raises:
        ExplorationFailed: a story failed and `raises` is True.
        ConfigurationError: there is no story of the name `only`, or no testing kit for `using`.
    """
    plan = Plan(
        saga=saga, input=input, invariant=invariant, setup=setup, reset=reset, key=key, using=using, error=error,
        commit=commit, signals=signals or {},
    )  # fmt: skip
    search = _Search(plan, only=only, pairs=pairs, stop_after=stop_after, most=most, until=time.monotonic() + within)
    with _quiet():
        search.run()
    found = search.found
    if only is not None and not found.stories:
        raise ConfigurationError(f"explore(only={only!r}): no such story; there are: {'; '.join(search.names)}")
    if raises:
        found.raise_for_failures()
    return found


class _Search:
    """From the story without a fault to those with one, and on to what only these reach."""

    def __init__(
        self, plan: Plan, *, only: str | None, pairs: bool, stop_after: int | None, most: int, until: float
    ) -> None:
        self.only, self.pairs, self.stop_after, self.most, self.until = only, pairs, stop_after, most, until
        self.shelter = borrow(plan.using).shelter
        self.stage = Stage(plan.saga, self.shelter)
        self.teller = Teller(plan, self.stage)
        self.found = Exploration(saga=plan.saga.__name__)
        self.names: list[str] = []
        self.known: dict[Any, None] = {}  # places with what they were reached with, as far as faults were tried there
        self.inside: dict[Place, tuple[str, ...]] = {}

    def run(self) -> None:
        """Tell all stories."""
        with self.stage.set(), hooks.told_here(self.shelter):
            script = self._tell(())
            if script is None or (self.found.failures and self.only is None):
                return  # it does not even work without a fault
            self._look_again()
            self._note(script, ())
            first: list[Faults] = [(fault,) for place in script.reached for fault in self._faults(place)]
            later: list[Faults] = self._together(script)
            for faults in first:
                if (script := self._tell(faults)) is not None:
                    later += self._children(script, faults)
            for faults in later:
                self._tell(faults)

    def _together(self, script: Script) -> list[Faults]:
        """Stories with a fault in each of two steps that run side by side."""
        places = [place for place in script.reached if place.part is Part.DO]
        return [
            pair
            for number, one in enumerate(places)
            for other in places[number + 1 :]
            if other.step in one.beside
            for pair in together(one, other)
        ]

    def _tell(self, faults: Faults) -> Script | None:
        name = title(faults)
        self.names.append(name)
        if self.only is not None and faults and self.only != name and not self.only.startswith(f"{name} + "):
            return None
        if self._is_over():
            self.found.left_out.append(name)
            return None
        story, script = self.teller.tell(faults)
        if self.only is None or self.only == name:
            self.found.stories.append(story)
        return script

    def _look_again(self) -> None:
        """The story without a fault once more: it has to find the world that the first one found."""
        again, _ = self.teller.tell(())
        if again.failed and not self.found.failures:
            raise ConfigurationError(
                f"explore({self.found.saga}): without any fault it went well the first time and not the second time, "
                f"so the world was not as before; give explore() a reset= that puts it back:\n{again}"
            )

    def _is_over(self) -> bool:
        if self.stop_after is not None and len(self.found.failures) >= self.stop_after:
            self.found.stopped_by = f"{self.stop_after} failed"
        elif len(self.found.stories) >= self.most:
            self.found.stopped_by = f"most={self.most}"
        elif time.monotonic() > self.until:
            self.found.stopped_by = "out of time, see within="
        return bool(self.found.stopped_by)

    def _children(self, script: Script, faults: Faults) -> list[Faults]:
        """Stories with one more fault, at places that no story has come to yet; with `pairs` at all of them."""
        fresh = self._note(script, faults)
        places = [place for place in script.reached if self.pairs or place in fresh]
        return [
            (*faults, fault)
            for place in places
            for fault in self._faults(place)
            if fault not in faults and not (fault.kind in CANCELS and faults[0].kind in CANCELS)
        ]

    def _note(self, script: Script, faults: Faults) -> set[Place]:
        """Remember what a story came to; returns the places that are new, or new in this way."""
        self.inside |= {place: calls for place, calls in script.inside.items() if place not in self.inside}
        fresh: set[Place] = set()
        for place, unknown in script.reached.items():
            after = bool(faults) and place.is_question and faults[0].kind in HAPPENED
            for each in unknown:
                if (place, each, after) not in self.known:
                    self.known[place, each, after] = None
                    fresh.add(place)
        return {place for place in fresh if not faults or place.part is not Part.DO}

    def _faults(self, place: Place) -> Iterator[Fault]:
        return faults_at(place, self.inside.get(place, ()), has_memory=bool(self.teller.remembered))


@contextmanager
def _quiet() -> Iterator[None]:
    """Workers report what goes wrong, and here everything does."""
    log = logging.getLogger("sagas.worker")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


__all__ = ["ExplorationFailed", "explore"]
