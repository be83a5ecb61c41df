"""What is looked at in the end of every story."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

from sagas.engine import SagaRun
from sagas.store.rows import Connection
from sagas.testing.explorer.places import Part
from sagas.testing.explorer.script import Script, shown
from sagas.verify import Finding, verify

Invariant = Callable[..., Any]
MOST_LINES = 4  # of what an assert says
LONGEST_LINE = 160


def checked(
    connection: Connection, run: SagaRun, script: Script, problem: str, invariant: Invariant | None
) -> Iterator[str]:  # fmt: skip
    """What is wrong, in words; nothing when all is well.

    Args:
        connection: where the saga is.
        run: the saga in the end.
        script: what happened.
        problem: with how it ended, if there is one.
        invariant: the user's own.
    """
    if problem:
        yield problem
    yield from (found.problem for found in verify(connection, [run.id]) if isinstance(found, Finding))
    yield from _out_of_turn(script)
    if run.finished_at is not None and invariant is not None:  # a parked saga is in the middle of something
        yield from _held(invariant, run)


def _out_of_turn(script: Script) -> Iterator[str]:
    undoing: set[str] = set()
    for moment in script.moments:
        if moment.place is None or moment.late:
            continue
        if moment.place.part in (Part.UNDO, Part.SETTLE):
            undoing.add(moment.place.step)
        elif moment.place.part is Part.DO and moment.began and moment.place.step in undoing:
            yield f"{moment.place.label} ran although its compensation had begun"


def _held(invariant: Invariant, run: SagaRun) -> Iterator[str]:
    try:
        said = call(invariant, run)
    except Exception as problem:
        yield f"invariant failed: {_text(problem)}"
        return
    if said is False:
        yield "invariant failed: it returned False"
    elif isinstance(said, str) and said:
        yield f"invariant failed: {said}"
    elif said is not None and said is not True and said != "":
        yield f"invariant returned {shown(said)}; let it raise, or return True, False or what is wrong"


def _text(problem: Exception) -> str:
    """The message, or the line that failed where there is none."""
    name = "" if isinstance(problem, AssertionError) else f"{type(problem).__name__}: "
    lines = str(problem).splitlines()[:MOST_LINES]
    if not lines:
        last = traceback.extract_tb(problem.__traceback__)[-1]
        lines = [f"{last.line} ({PurePath(last.filename).name}, line {last.lineno})"]
    return name + "\n".join(line[:LONGEST_LINE] for line in lines)


def call(function: Callable[..., Any], *given: Any) -> Any:
    """Call a function of the user's with as many of the arguments as it takes."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return function(*given)
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return function(*given)
    taken = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return function(*given[: len(taken)])
