"""The saga's functions with the script's faults in front of, inside and behind them.

For as long as a stage is set, the functions of one saga class are replaced; nothing of the engine is. A fault is
therefore carried through the real worker, machine and database, as if the user's function had behaved that way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

from sagas.body import Body
from sagas.errors import Refused, Undecided
from sagas.events import Direction
from sagas.inline import run_here
from sagas.testing.explorer.faults import INSIDE, SILENT, Fault, Kind
from sagas.testing.explorer.inside import Watch
from sagas.testing.explorer.places import LAST_LOOK, Part, Place, SagaClass, places_of
from sagas.testing.explorer.script import Death, Script, one_line, shown

Function = Callable[..., Any]
Shelter = Callable[[], AbstractContextManager[None]]

_playing: list[Script] = []


def note(text: str) -> None:
    """Say something about the world outside in the story that is being told, such as "paid back 10.00 of 12.50".

    Args:
        text: comes under the line of the step that is at work. Without a story it goes nowhere.
    """
    if _playing:
        _playing[-1].notes.append(text)


class Stage:
    """One saga class whose functions follow a script.

    Args:
        saga: the class.
        shelter: what the body of an external step is run in.
    """

    def __init__(self, saga: SagaClass, shelter: Shelter) -> None:
        self.saga, self.shelter = saga, shelter
        self.places = places_of(saga)
        self._script: Script | None = None

    @contextmanager
    def set(self) -> Iterator[None]:
        """Replace the functions, and put them back in the end."""
        before: list[tuple[Any, str, Function]] = []

        def replace(owner: Any, name: str, parts: dict[Direction, Part]) -> None:
            before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, self._wrapped(owner, getattr(owner, name), parts))

        do, undo, settle = Direction.DO, Direction.UNDO, Direction.SETTLE
        try:
            for step in self.saga.steps:
                if not self.places[step.name, Part.DO].waits:
                    replace(step, "body", {do: Part.DO})
                if getattr(step, "resolver", None) is not None:
                    replace(step, "resolver", {do: Part.RESOLVE, settle: Part.RESOLVE})
                if (step.name, Part.UNDO) in self.places and step.undo is not None:
                    replace(step.undo, "body", {undo: Part.UNDO, settle: Part.SETTLE})
                    if step.undo.resolver is not None:
                        replace(step.undo, "resolver", {undo: Part.UNDO_RESOLVE})
            yield
        finally:
            for owner, name, function in before:
                setattr(owner, name, function)

    @contextmanager
    def playing(self, script: Script) -> Iterator[None]:
        """Follow a script."""
        self._script = script
        _playing.append(script)
        try:
            yield
        finally:
            _playing.pop()
            self._script = None

    def _wrapped(self, owner: Any, function: Function, parts: dict[Direction, Part]) -> Function:
        step = getattr(owner, "step", owner).name

        def played(*args: Any) -> Any:
            if self._script is None:
                return function(*args)
            body = cast(Body, args[0]._run)
            place = self.places[step, parts[body.attempt_event.direction]]
            with self.shelter() if place.external else nullcontext():
                return _Act(self.saga, self._script, place, function, args).play()

        return played


class _Act:
    """One call of one function."""

    def __init__(
        self, saga: SagaClass, script: Script, place: Place, function: Function, args: tuple[Any, ...]
    ) -> None:  # fmt: skip
        self.saga, self.script, self.place, self.function, self.args = saga, script, place, function, args
        self.watch: Watch | None = None
        given = ", ".join(shown(each) for each in args[1:])
        name = place.label.removesuffix(LAST_LOOK)
        called = f"{name}({given})" if given else name
        self.called = f"a last look: {called}" if place.part is Part.SETTLE else called

    def play(self) -> Any:
        """Run the function with the fault that strikes it, if one does."""
        fault = self.script.come_to(self.place, self.args)
        if self.script.thawing and self.script.dying:
            self._run(", then the worker died", injected=True)
            raise Death
        if fault is None:
            return self._watched() if self._is_news() else self._run()
        if fault.kind in SILENT and self.place.is_question:
            return self._cannot_say()
        return _PLAYS[fault.kind](self, fault)

    def _is_news(self) -> bool:
        return self.script.watch and self.place.external and self.place not in self.script.inside

    def _run(self, then: str = "", *, injected: bool = False) -> Any:
        """The function itself; `then`: what happens after it."""
        verb = "was asked" if self.place.is_question else "ran"
        try:
            result = self.function(*self.args)
            if inspect.iscoroutine(result):
                result = run_here(self._awaited(result))
        except Death:
            raise
        except Refused as refused:
            self._say(f"{self.called} refused: {refused}", error=refused)
            raise
        except Undecided as undecided:
            self._say(f"{self.called} was asked and could not say: {undecided}", error=undecided)
            raise
        except BaseException as problem:
            self._say(f"{self.called} raised {type(problem).__name__}: {one_line(problem)}", error=problem)
            raise
        answer = f" and said {shown(result)}" if self.place.is_question else f" and returned {shown(result)}"
        self._say(f"{self.called} {verb}{answer if result is not None else ''}{then}", injected=injected)
        return result

    async def _awaited(self, body: Coroutine[Any, Any, Any]) -> Any:
        with self.watch.on() if self.watch is not None else nullcontext():  # perhaps in another thread
            return await body

    def _say(self, text: str, **about: Any) -> None:
        self.script.say(text, place=self.place, began=True, **about)

    def _watched(self) -> Any:
        watch = self.watch = Watch(self.function, self.saga, lambda number, name: None)
        with watch.on():
            result = self._run()
        self.script.inside[self.place] = tuple(watch.calls)
        return result

    # --- the faults ---

    def error_before(self, fault: Fault) -> Any:
        self._say(f"{self.called} failed before it did anything", injected=True)
        raise self.script.error()

    def error_after(self, fault: Fault) -> Any:
        how = "its answer was lost" if self.place.external else "what it wrote was rolled back"
        self._run(f", then failed: {how}", injected=True)
        raise self.script.error()

    def crash_before(self, fault: Fault) -> Any:
        self._say(f"the worker died as {self.called} was about to run", injected=True)
        raise Death

    def crash_after(self, fault: Fault) -> Any:
        end = ", then the worker died"
        self._run(end if self.place.external else f"{end} before it could commit", injected=True)
        raise Death

    def twice(self, fault: Fault) -> Any:
        self._run(", and its answer was lost: another worker has the same attempt", injected=True)
        return self._run()

    def refused(self, fault: Fault) -> Any:
        self._say(f"{self.called} refused and did nothing", injected=True)
        raise Refused("refused by the explorer")

    def cancel_during(self, fault: Fault) -> Any:
        self.script.cancel()
        self.script.say(f"somebody asked to cancel while {self.place.label} was at work")
        return self._run()

    def cannot_say(self, fault: Fault) -> Any:
        return self._cannot_say()

    def _cannot_say(self) -> Any:
        self._say(f"{self.called} was asked and could not say", injected=True)
        raise Undecided("the explorer keeps it from answering")

    def inside(self, fault: Fault) -> Any:
        lost = fault.kind is Kind.NO_ANSWER

        def strike(number: int, name: str) -> None:
            if number == fault.call:
                what = "its answer was lost" if lost else "the worker died"
                self._say(f"{self.called} called {fault.called}(), which happened; {what}", injected=True)
                raise self.script.error() if lost else Death()

        self.watch = Watch(self.function, self.saga, strike)
        with self.watch.on():
            return self._run()


_PLAYS: dict[Kind, Callable[[_Act, Fault], Any]] = {
    Kind.ERROR_BEFORE: _Act.error_before,
    Kind.FAILS_BEFORE: _Act.error_before,
    Kind.UNKNOWN_NOTHING: _Act.error_before,
    Kind.LATE_UNDO: _Act.error_before,
    Kind.LATE_END: _Act.error_before,
    Kind.LATE_LOST: _Act.error_before,
    Kind.ERROR_AFTER: _Act.error_after,
    Kind.FAILS_AFTER: _Act.error_after,
    Kind.UNKNOWN: _Act.error_after,
    Kind.CRASH_BEFORE: _Act.crash_before,
    Kind.CRASH_AFTER: _Act.crash_after,
    Kind.TWICE: _Act.twice,
    Kind.REFUSED: _Act.refused,
    Kind.CANCEL_DURING: _Act.cancel_during,
    Kind.CANNOT_SAY: _Act.cannot_say,
    **dict.fromkeys(INSIDE, _Act.inside),
}
