"""Finding what `--app` names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from sagas.doctor import Problem
from sagas.errors import ConfigurationError
from sagas.ports import Store
from sagas_outbox.relay import Publisher


@runtime_checkable
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
        """What it knows to be wrong, such as of its Celery app."""

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
    if isinstance(found, type) or not isinstance(found, Runtime):
        kind = "the class itself" if isinstance(found, type) else f"a {type(found).__name__}"
        raise ConfigurationError(
            f"--app {address}: that is {kind}, not a runtime object such as sagas_sqlalchemy.Sagas(engine)"
            f"{_hint(module, name)}"
        )
    return found


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
        ) from problem


def _hint(module: ModuleType, wanted: str) -> str:
    there = [name for name, value in vars(module).items() if isinstance(value, Runtime) and not isinstance(value, type)]
    if there:
        return f"; there is {', '.join(f'{module.__name__}:{name}' for name in there)}"
    close = get_close_matches(wanted, list(vars(module)), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
