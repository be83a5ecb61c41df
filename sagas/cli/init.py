"""`sagas init`: works before anything is set up, so it looks for itself which framework it is in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg

from sagas.cli.runtime import find_runtime, store_of
from sagas.desk import StoreDesk
from sagas.errors import ConfigurationError, SagaError
from sagas.plugging import Finding
from sagas.ports import Store


def init(app: str | None, *, celery: bool) -> Iterable[Finding]:
    """What the project in this folder is to have, looked for one after the other.

    Args:
        app: as `--app`; None: looked for.
        celery: the project runs sagas on Celery.

    Raises:
        ConfigurationError: no project that can be read is here.
    """
    folder = Path.cwd()
    if app is None and (folder / "manage.py").exists():
        found: Iterable[Finding] = _integration("django").look(folder, celery=celery)
        return found
    return _sqlalchemy(folder, app)


def _integration(name: str) -> Any:
    """The part that knows the framework, imported by name: the core imports none."""
    try:
        return import_module(f"sagas_{name}.plugging")
    except ModuleNotFoundError as problem:
        raise ConfigurationError(
            f"this looks like a project with {name}, which is not installed here: pip install 'outbox-sagas[{name}]'"
        ) from problem


def _sqlalchemy(folder: Path, app: str | None) -> Iterator[Finding]:
    plugging = _integration("sqlalchemy")
    yield from plugging.look(folder)
    address = app or plugging.runtime_of(folder)
    if address is None:
        yield Finding(what="the database", there=False, remedy="Run `sagas init` again when the above is there.")
        return
    yield from _checked(address, "run `alembic upgrade head`" if plugging.has_revision(folder) else "")


def _checked(address: str, remedy: str) -> Iterator[Finding]:
    """The runtime can be imported, and its database has the tables; `remedy` says how they get there, if known."""
    try:
        runtime = find_runtime(address)
        store = store_of(runtime, address)
    except SagaError as problem:
        yield Finding(what=f"the runtime {address}", there=False, remedy=str(problem))
        return
    yield Finding(what=f"the runtime {address}", there=True)
    lacking = _ready(store, address, remedy or runtime.remedy)
    yield Finding(what="the tables in its database", there=not lacking, remedy=lacking)


def _ready(store: Store, address: str, remedy: str) -> str:
    """Why its workers would not start; empty: they would."""
    desk = None
    try:
        desk = StoreDesk(store, command=f"sagas --app {address}", remedy=remedy)
        desk.check_ready()
    except (SagaError, psycopg.Error) as problem:
        return str(problem)
    finally:
        if desk is not None:
            desk.close()
    return ""
