"""Help for tests of sagas: the kit for your own tests, throw-away servers, process supervision and a bad proxy.

Nothing in here is imported by the rest of the library.

- `Kit`, `drain`, `run_saga`, `answers`, `clock`, `assert_started` and the like: your sagas in your own tests, on the
  connection of the test, without broker or worker. With pytest the fixture `sagas` is the kit.
- `explore`: your saga under every single fault, and the shortest story in which it goes wrong.
- `sagas.testing.servers`: a real Postgres and a real Redis for as long as a `with` block lasts.
- `sagas.testing.processes`: child processes that cannot outlive the one that started them.
- `sagas.testing.proxy`: a TCP proxy that resets, swallows, cuts or delays on demand.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sagas.testing.asserts import Started, assert_not_started, assert_started, started
    from sagas.testing.draining import Ran, Unfinished
    from sagas.testing.explorer import Exploration, ExplorationFailed, Story, explore, note
    from sagas.testing.faking import Answer, Answers, Call, WrongAnswer, answers
    from sagas.testing.kit import Kit, SagasMixin, clock, drain, reset, run_saga

_WHERE = {
    "asserts": (
        "Started",
        "assert_not_started",
        "assert_started",
        "started",
    ),
    "draining": (
        "Ran",
        "Unfinished",
    ),
    "explorer": (
        "Exploration",
        "ExplorationFailed",
        "Story",
        "explore",
        "note",
    ),
    "faking": (
        "Answer",
        "Answers",
        "Call",
        "WrongAnswer",
        "answers",
    ),
    "kit": (
        "Kit",
        "SagasMixin",
        "clock",
        "drain",
        "reset",
        "run_saga",
    ),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    # late, because the processes that servers start import this package too, and need none of it
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "Answer",
    "Answers",
    "Call",
    "Exploration",
    "ExplorationFailed",
    "Kit",
    "Ran",
    "SagasMixin",
    "Started",
    "Story",
    "Unfinished",
    "WrongAnswer",
    "answers",
    "assert_not_started",
    "assert_started",
    "clock",
    "drain",
    "explore",
    "note",
    "reset",
    "run_saga",
    "started",
]
