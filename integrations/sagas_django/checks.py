"""System checks: what would go wrong later is said at start-up.

`manage.py check` alone touches no database; `check --database default`, `migrate` and the commands of
sagas also look into it. A check that does not fit a project is silenced by `SILENCED_SYSTEM_CHECKS`.

E001 SAGAS cannot be read             W001 publish window is short
E002 no database is Postgres          W002 database cannot be reached
E003 Postgres is too old              W003 tables are missing or old
E004 a definition was changed         W004 default database is not Postgres
E005 the releases cannot be read      W005 a definition is not released yet
E006 a schedule will never start
E010 to E012, W010 to W013: what in the Celery app would defeat the outbox, see `sagas_celery.checks`

With `check --deploy` also: W006 no file of released definitions, W007 a short lease, and W012.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Error, Warning, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, router

from sagas import releases
from sagas.doctor import Level
from sagas.errors import ConfigurationError
from sagas.registry import registry
from sagas.schedules.declaration import DEFAULT, schedules
from sagas.store.schema_files import NAMES
from sagas_django.conf import definitions_file, sagas_settings
from sagas_outbox.rights import denial

if TYPE_CHECKING:
    from celery import Celery

OLDEST_POSTGRES = 150000
SCHEMA = len(NAMES)  # the version of the tables that this code needs
SHORT_LEASE = 10.0  # seconds; less is lost by a garbage collection of the server's disk, or a laptop's nap
SHORT_WINDOW = 2.0  # seconds; less is republished before a busy worker gets to it
POSTGRES = "postgresql"


def insist() -> None:
    """Refuse what `manage.py check` calls an error of sagas. Celery runs the checks, and does not look at the result.

    Raises:
        ConfigurationError: for all of them at once.
    """
    if os.environ.get("CELERY_SKIP_CHECKS"):  # Celery's own switch
        return
    _refuse(run_checks(tags=["sagas"], databases=[]))


def insist_on_celery(app: Celery) -> None:
    """Refuse an app that would defeat sagas, also where `sagas_celery` is not installed: a relay publishes to it.

    Raises:
        ConfigurationError: for all that is wrong with it at once.
    """
    _refuse(_celery(app))


def _refuse(found: Sequence[CheckMessage]) -> None:
    errors = [each for each in found if each.is_serious() and not each.is_silenced()]
    if errors:
        raise ConfigurationError("\n".join(f"{each.id}: {each.msg} {each.hint or ''}".strip() for each in errors))


def check_settings(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """The `SAGAS` dict can be read and makes sense."""
    try:
        settings = sagas_settings()
    except ConfigurationError as problem:
        return [Error(str(problem), hint="Correct SAGAS in the settings; docs/settings.md lists it.", id="sagas.E001")]
    if settings.publish_window < SHORT_WINDOW:
        return [
            Warning(
                f"SAGAS['PUBLISH_WINDOW'] is {settings.publish_window} s: messages that wait longer in the broker are "
                f"published again",
                hint=f"Use at least {SHORT_WINDOW} s, and more than the messages that workers prefetch take.",
                id="sagas.W001",
            )
        ]
    return []


def check_definitions(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Definitions are as they were released, in projects that keep a file of them."""
    try:
        file = definitions_file()
        if file is None or not file.exists():
            return []
        found = list(releases.differences(releases.read(file), registry.definitions()))
    except ConfigurationError as problem:
        return [Error(str(problem), hint="Take it from version control again.", id="sagas.E005")]
    return [_definition(each, file) for each in found]


def check_schedules(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Every schedule starts its sagas in a database that there is, and that sagas can be in."""
    known = [alias for alias in connections if connections[alias].vendor == POSTGRES]
    return [
        Error(
            f"schedule {each.name!r} starts its sagas in store {each.store or DEFAULT!r}, which is no Postgres "
            f"database of this project",
            hint=f"Give it store= one of {', '.join(map(repr, known)) or 'none'}, and run a relay for that.",
            obj=each.saga,
            id="sagas.E006",
        )
        for each in schedules.all()
        if (each.store or DEFAULT) not in known
    ]


def check_deployment(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """What is fine while one tries things out, and not in production. Only with `--deploy`."""
    found: list[CheckMessage] = []
    try:
        settings, file = sagas_settings(), definitions_file()
    except ConfigurationError:
        return found  # `check_settings` says it better
    if (file is None or not file.exists()) and any(registry.definitions()):
        found.append(
            Warning(
                "there is no file of released definitions, so nobody notices when a released saga is changed",
                hint="Run `manage.py sagas definitions --release`, and keep the file in version control.",
                id="sagas.W006",
            )
        )
    if settings.lease < SHORT_LEASE:
        found.append(
            Warning(
                f"SAGAS['LEASE'] is {settings.lease} s: a worker that is held up for as long loses its work to another",
                hint=f"Use at least {SHORT_LEASE} s, or leave it out: the default is 30 s.",
                id="sagas.W007",
            )
        )
    return found


def _definition(found: releases.Difference, file: Path) -> CheckMessage:
    if found.changed:
        return Error(
            found.message, hint=f"{file} says what was released; `manage.py sagas definitions` lists all.",
            id="sagas.E004",
        )  # fmt: skip
    return Warning(
        f"{found.name} version {found.version} is not in {file}, so changes of it would not be noticed",
        hint="Run `manage.py sagas definitions --release` and commit the file.",
        id="sagas.W005",
    )


def check_engines(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Some database is a Postgres, and better the default one. Looks at the settings only."""
    try:
        vendors = {alias: connections[alias].vendor for alias in connections}
    except ImproperlyConfigured:
        return []  # Django's own checks say it better
    if POSTGRES not in vendors.values():
        return [
            Error(
                f"none of DATABASES is Postgres ({_listed(vendors)}); sagas live in Postgres only",
                hint="Use ENGINE 'django.db.backends.postgresql', or take 'sagas_django' out of INSTALLED_APPS.",
                id="sagas.E002",
            )
        ]
    if vendors[DEFAULT_DB_ALIAS] != POSTGRES:
        return [
            Warning(
                f"DATABASES['default'] is {vendors[DEFAULT_DB_ALIAS]}: Saga.start() without using= raises "
                f"({_listed(vendors)})",
                hint="Pass using= the alias of a Postgres database, and --database to `manage.py sagas`.",
                id="sagas.W004",
            )
        ]
    return []


def _listed(vendors: dict[str, str]) -> str:
    return ", ".join(f"{alias}: {vendor}" for alias, vendor in sorted(vendors.items()))


def check_databases(
    app_configs: Sequence[AppConfig] | None, databases: Iterable[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Each Postgres asked for that sagas may be in is of a version we know, with our tables in it."""
    ours = (
        alias
        for alias in databases or ()
        if connections[alias].vendor == POSTGRES and router.allow_migrate(alias, "sagas")
    )
    return [problem for alias in ours for problem in check_postgres(alias)]


def _unreadable(alias: str, problem: DatabaseError) -> CheckMessage:
    if said := denial(problem):
        return Warning(
            f"the user of DATABASES[{alias!r}] may not read what it needs: {said}",
            hint="Grant it the role of what this process does, such as sagas_operator: `manage.py sagas roles`.",
            id="sagas.W002",
        )
    return Warning(
        f"DATABASES[{alias!r}] cannot be reached: {problem}".rstrip(),
        hint="Is the server up, and are HOST, PORT, USER and PASSWORD right?",
        id="sagas.W002",
    )


def check_postgres(alias: str) -> list[CheckMessage]:
    """One Postgres: it can be reached, is new enough, and has tables that fit this code."""
    connection = connections[alias]
    try:
        with connection.cursor() as cursor:
            cursor.execute("select current_setting('server_version_num')::int, to_regclass('sagas_schema') is not null")
            version, migrated = cursor.fetchone()
            tables = 0
            if migrated:
                cursor.execute("select coalesce(max(version), 0) from sagas_schema")
                (tables,) = cursor.fetchone()
    except DatabaseError as problem:
        return [_unreadable(alias, problem)]
    found: list[CheckMessage] = []
    if version < OLDEST_POSTGRES:
        found.append(
            Error(
                f"DATABASES[{alias!r}] is PostgreSQL {version // 10000}; the oldest that sagas run on is "
                f"{OLDEST_POSTGRES // 10000}",
                hint="Upgrade the server, or keep sagas in a newer one and pass using= its alias.",
                id="sagas.E003",
            )
        )
    if tables < SCHEMA:
        state = f"has tables of sagas of version {tables}, version {SCHEMA} is needed" if tables else "lacks our tables"
        found.append(
            Warning(
                f"DATABASES[{alias!r}] {state}",
                hint=f"Run `manage.py migrate --database {alias}` (if it was run, look at search_path).",
                id="sagas.W003",
            )
        )
    return found


def check_celery(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """The Celery app does not defeat the outbox. Only where `sagas_celery` is installed: the embedded worker needs
    no broker, and a project may have a Celery app for other things."""
    if not apps.is_installed("sagas_celery"):
        return []
    return _celery()


def check_celery_deployment(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """What of the Celery app matters in production only."""
    if not apps.is_installed("sagas_celery"):
        return []
    usual = {message.id for message in _celery()}
    return [message for message in _celery(deploy=True) if message.id not in usual]


def _celery(app: Celery | None = None, *, deploy: bool = False) -> list[CheckMessage]:
    from sagas_celery.doctor import misconfigured

    return [
        (Error if problem.level is Level.ERROR else Warning)(problem.message, hint=problem.hint, id=problem.id)
        for problem in misconfigured(app, deploy=deploy)
    ]
