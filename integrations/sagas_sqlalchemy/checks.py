"""What is wrong with a runtime, said before anything of it runs: the checks of docs/checks.md, without Django."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import psycopg

from sagas import ports, releases
from sagas.desk import StoreDesk
from sagas.doctor import Level, Problem
from sagas.errors import ConfigurationError, StoreNotReady
from sagas.registry import registry
from sagas.schedules.declaration import schedules

if TYPE_CHECKING:
    from sagas_sqlalchemy.runtime import Sagas

log = logging.getLogger("sagas.worker")

SHORT_WINDOW: Final = 2.0  # seconds; less is published again before a busy worker gets to it


def look(runtime: Sagas) -> Iterator[Problem]:
    """What is wrong with its settings and its definitions; touches no database.

    Args:
        runtime: its modules are imported.
    """
    window = runtime.settings.publish_window
    if window < SHORT_WINDOW:
        yield Problem(
            id="sagas.W001", level=Level.WARNING,
            message=f"publish_window is {window} s: messages that wait longer in the broker are published again",
            hint=f"Use at least {SHORT_WINDOW} s, and more than the messages that workers prefetch take.",
        )  # fmt: skip
    yield from _definitions(runtime)
    yield from _schedules()


def _definitions(runtime: Sagas) -> Iterator[Problem]:
    """Definitions are as they were released, where a file of them is kept."""
    file = runtime.definitions_file
    if not file.exists():
        return
    try:
        found = list(releases.differences(releases.read(file), registry.definitions()))
    except ConfigurationError as problem:
        yield Problem(
            id="sagas.E005", level=Level.ERROR, message=str(problem), hint="Take it from version control again."
        )  # fmt: skip
        return
    for each in found:
        if each.changed:
            yield Problem(
                id="sagas.E004", level=Level.ERROR, message=each.message,
                hint=f"{file} says what was released; `sagas definitions` lists all.",
            )  # fmt: skip
        else:
            yield Problem(
                id="sagas.W005", level=Level.WARNING,
                message=f"{each.name} version {each.version} is not in {file}, so changes of it would not be noticed",
                hint="Run `sagas definitions --release` and commit the file.",
            )  # fmt: skip


def _schedules() -> Iterator[Problem]:
    """A warning only: another process may have the runtime that this one does not know."""
    known = ports.store_names()
    for each in schedules.all():
        if each.store is not None and each.store not in known:
            yield Problem(
                id="sagas.E006", level=Level.WARNING,
                message=f"schedule {each.name!r} starts its sagas in store {each.store!r}, which this process has not; "
                f"it has {', '.join(map(repr, known)) or 'none'}",
                hint="Give it store= the name= of a Sagas(...) runtime, and run a relay or worker for that.",
            )  # fmt: skip


def insist(problems: Iterable[Problem], command: str) -> None:
    """Write down what hurts one day, and refuse what would not work.

    Args:
        problems: what was found.
        command: what the commands begin with, for hints.

    Raises:
        ConfigurationError: for all errors at once.
    """
    errors = []
    for each in problems:
        text = f"{each.id}: {each.message}. {each.hint}".replace("`sagas ", f"`{command} ")
        if each.level is Level.ERROR:
            errors.append(text)
        else:
            log.warning("%s", text)
    if errors:
        raise ConfigurationError("\n".join(errors))


def before_work(runtime: Sagas) -> None:
    """What a process that is about to run sagas insists on. Its database may well be down for now: workers wait for it.

    Raises:
        ConfigurationError: a check has an error.
        StoreNotReady: the database is too old, lacks our tables, or has old ones.
    """
    insist(look(runtime), "sagas --app ...")
    desk = StoreDesk(runtime.store, command="sagas", remedy=runtime.remedy)
    try:
        if _answers(desk):
            desk.check_ready()
    finally:
        desk.close()


def _answers(desk: StoreDesk) -> bool:
    try:
        desk.using.execute("select 1")
    except (StoreNotReady, psycopg.Error) as problem:
        log.warning("%s; whether it has our tables is not known yet", problem)
        return False
    return True
