"""Finding what `--app` names."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol

from sagas.doctor import Problem
from sagas.errors import ConfigurationError, SagaError
from sagas.ports import Store
from sagas_outbox.relay import Publisher

OFFERS: Final = ("store", "remedy", "problems", "check", "publisher")
MOST_FRAMES: Final = 3  # of a traceback, in a message


class Runtime(Protocol):
    """What an integration's runtime object offers the command line."""

    name: str  # of its store
    definitions_file: Path  # where released definitions are kept

    @property
    def store(self) -> Store:
        """The store, with every definition loaded."""

    @property
    def remedy(self) -> str:
        """How the tables get into its database."""

    def problems(self) -> Iterable[Problem]:
        """What it knows to be wrong with settings, definitions and its Celery app."""

    def check(self, command: str) -> None:
        """See that workers and relays may start.

        Args:
            command: what hints begin commands with.

        Raises:
            ConfigurationError: they had better not.
        """

    def publisher(self, app: str | None) -> Publisher:
        """Where the relay publishes.

        Args:
            app: as for `celery -A`; None: what the runtime was given.

        Raises:
            ConfigurationError: there is no such app.
        """


def find_runtime(address: str) -> Runtime:
    """The runtime object at `module:attribute`, imported from where the command was called.

    Raises:
        ConfigurationError: there is none; the message says what is there.
    """
    module_name, colon, name = address.partition(":")
    if not (module_name and colon and name):
        raise ConfigurationError(f"--app {address}: write module:name, such as shop.db:sagas")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module = _imported(address, module_name)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"--app {address}: {module_name} has no {part!r}{_hint(module, part)}")
        found = getattr(found, part)
    if not _is_runtime(found):
        kind = "the class itself" if isinstance(found, type) else f"a {type(found).__name__}"
        raise ConfigurationError(
            f"--app {address}: that is {kind}, not a runtime object such as sagas_sqlalchemy.Sagas(engine)"
            f"{_hint(module, name)}"
        )
    runtime: Runtime = found
    return runtime


def _is_runtime(value: Any) -> bool:
    """Looked up at its class: to ask it for its store would import what defines its sagas."""
    return not isinstance(value, type) and all(hasattr(type(value), name) for name in OFFERS)


def store_of(runtime: Runtime, address: str) -> Store:
    """The store of a runtime, with every definition loaded.

    Raises:
        ConfigurationError: a module that defines sagas cannot be imported.
    """
    try:
        return runtime.store
    except SagaError:
        raise
    except Exception as problem:
        raise _broken(address, "a module that defines sagas", problem) from problem


def _imported(address: str, name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{name}.".startswith(f"{problem.name}."):
            raise ConfigurationError(
                f"--app {address}: {name} imports {problem.name!r}, which is not installed here"
            ) from problem
        raise ConfigurationError(
            f"--app {address}: there is no module {problem.name!r} here ({os.getcwd()}) or among the installed ones"
            f"{_in_src(problem.name)}"
        ) from problem
    except SagaError:
        raise
    except Exception as problem:
        raise _broken(address, name, problem) from problem


def _in_src(name: str) -> str:
    place = Path("src") / name.replace(".", "/")
    if place.is_dir() or place.with_suffix(".py").is_file():
        return f"; there is {place}: call this with PYTHONPATH=src, or install the project (pip install -e .)"
    return ""


def _broken(address: str, what: str, problem: Exception) -> ConfigurationError:
    """An application's module raised: what, and the last lines of where."""
    frames = [each for each in traceback.extract_tb(problem.__traceback__) if not each.filename.startswith("<frozen")]
    where = "".join(traceback.format_list(frames[-MOST_FRAMES:])).rstrip()
    error = traceback.format_exception_only(problem)[-1].strip()
    return ConfigurationError(f"--app {address}: {what} cannot be imported: {error}\n{where}")


def _hint(module: ModuleType, wanted: str) -> str:
    there = [name for name, value in vars(module).items() if _is_runtime(value)]
    if there:
        return f"; there is {', '.join(f'{module.__name__}:{name}' for name in there)}"
    close = get_close_matches(wanted, list(vars(module)), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
