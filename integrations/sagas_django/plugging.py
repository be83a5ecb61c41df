"""What `sagas init` looks for in a Django project."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import django
from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage

from sagas.errors import ConfigurationError
from sagas.plugging import SAGA, Finding

SETTINGS = re.compile(r"""DJANGO_SETTINGS_MODULE["'],\s*["']([\w.]+)["']""")
DATABASES = """import os

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"],  # host, port, user and password come from PGHOST, PGPORT, PGUSER, PGPASSWORD
    }
}
"""
START = 'PlaceOrder.start(Placed(7), key="order-7")'
BROKER = """CELERY_BROKER_URL = "redis://localhost:6379/0"
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_timeout": 10, "socket_connect_timeout": 5}
"""
APP = """import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "{settings}")
app = Celery("{package}")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
"""
IMPORTED = """from {package}.celery import app as celery_app

__all__ = ["celery_app"]
"""
IMPORTS = re.compile(rb"^[ \t]*(from|import)\b.*celery", re.MULTILINE)
NO_PACKAGE = """The settings {settings} are in no package of their own: a celery.py beside them would hide Celery.
Make the app in a module of one of your packages, such as shop/celery.py, and import it in shop/__init__.py:"""


def look(folder: Path, *, celery: bool) -> Iterator[Finding]:
    """Everything that a project has to have, in the order in which to add it.

    Args:
        folder: where `manage.py` is.
        celery: the project runs sagas on Celery.

    Raises:
        ConfigurationError: there is no Django project here, or its settings cannot be read.
    """
    name = _settings_of(folder)
    file = Path(str(sys.modules[name].__file__))
    yield _installed("sagas_django", file)
    engine = settings.DATABASES.get("default", {}).get("ENGINE", "")
    yield Finding(
        what=f"a Postgres as DATABASES['default'] ({engine or 'none'})", there=_is_postgres(engine), file=file,
        lines=DATABASES,
    )  # fmt: skip
    if celery or "sagas_celery" in settings.INSTALLED_APPS:
        yield from _celery(name, file)
    yield from _definitions(folder)
    if "sagas_django" in settings.INSTALLED_APPS and _is_postgres(engine):
        yield from _checked()
    else:
        yield Finding(
            what="system checks of sagas", there=False, remedy="Run `sagas init` again when the above is there."
        )


def _settings_of(folder: Path) -> str:
    """The name of the settings module, imported."""
    if not os.environ.get("DJANGO_SETTINGS_MODULE"):
        manage = folder / "manage.py"
        found = SETTINGS.search(manage.read_text()) if manage.exists() else None
        if found is None:
            raise ConfigurationError(f"no manage.py in {folder} names the settings: set DJANGO_SETTINGS_MODULE")
        os.environ["DJANGO_SETTINGS_MODULE"] = found[1]
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    name = os.environ["DJANGO_SETTINGS_MODULE"]
    try:
        settings.INSTALLED_APPS  # noqa: B018 - imports them
    except Exception as problem:
        raise ConfigurationError(
            f"the settings {name} cannot be read: {type(problem).__name__}: {problem}"
        ) from problem
    return name


def _is_postgres(engine: str) -> bool:
    return "postgres" in engine or "postgis" in engine


def _installed(app: str, file: Path) -> Finding:
    there = any(each == app or each.startswith(f"{app}.") for each in settings.INSTALLED_APPS)
    return Finding(
        what=f"{app!r} in INSTALLED_APPS", there=there, file=file, lines=f'INSTALLED_APPS = [*INSTALLED_APPS, "{app}"]'
    )  # fmt: skip


def _celery(name: str, file: Path) -> Iterator[Finding]:
    """The lines of Celery's own guide, and ours."""
    yield Finding(
        what="Celery", there=find_spec("celery") is not None, remedy="pip install 'outbox-sagas[celery]'"
    )  # fmt: skip
    yield _installed("sagas_celery", file)
    package = name.partition(".")[0]
    root = _folder_of(package)
    broker = hasattr(settings, "CELERY_BROKER_URL") or (root is not None and (root / "celery.py").exists())
    yield Finding(what="a broker", there=broker, file=file, lines=BROKER)
    if root is None:
        lines = "".join(each.format(settings=name, package="shop") for each in (APP, "\n", IMPORTED))
        yield Finding(
            what="a Celery app", there=_has_celery_app(), lines=lines, remedy=NO_PACKAGE.format(settings=name)
        )  # fmt: skip
        return
    app, init = root / "celery.py", root / "__init__.py"
    yield Finding(
        what=f"a Celery app ({package}.celery)", there=app.exists(), file=app,
        lines=APP.format(settings=name, package=package),
    )  # fmt: skip
    imported = init.exists() and IMPORTS.search(init.read_bytes()) is not None
    yield Finding(
        what=f"the Celery app imported in {package}/__init__.py", there=imported, file=init,
        lines=IMPORTED.format(package=package),
    )  # fmt: skip


def _folder_of(package: str) -> Path | None:
    """Where a module `celery` of a package belongs; None: it is none, or one that is spread over several folders."""
    folders = list(getattr(sys.modules[package], "__path__", ()))
    return Path(folders[0]) if len(folders) == 1 else None


def _has_celery_app() -> bool:
    """Whether the project sets one when it starts, wherever it is."""
    try:
        from sagas_celery.app import celery_app

        if not apps.ready:
            django.setup()
        return celery_app() is not None
    except Exception:  # without Celery, or a project that does not start: both are said elsewhere
        return False


def _definitions(folder: Path) -> Iterator[Finding]:
    """A module named `sagas` in one of the project's own apps."""
    own = [each for each in _app_folders() if folder in each.parents and "site-packages" not in each.parts]
    there = any((each / "sagas.py").exists() or (each / "sagas" / "__init__.py").exists() for each in own)
    first = own[0] if own else None
    yield Finding(
        what="a module sagas.py in an app of yours", there=there, file=first / "sagas.py" if first else None,
        lines=SAGA.format(package=first.name, start=START) if first else "",
        remedy="" if first else "Make an app (`manage.py startapp shop`), name it in INSTALLED_APPS, and add sagas.py.",
    )  # fmt: skip


def _app_folders() -> Iterator[Path]:
    for entry in settings.INSTALLED_APPS:
        try:
            yield Path(AppConfig.create(entry).path)
        except Exception:  # Django itself says what is wrong with it
            continue


def _checked() -> Iterator[Finding]:
    """What the system checks say, the database included."""
    try:
        if not apps.ready:
            django.setup()
    except Exception as problem:
        yield Finding(what="a project that starts", there=False, remedy=f"{type(problem).__name__}: {problem}")
        return
    from django.core.checks.registry import registry

    found: list[Any] = registry.run_checks(tags=["sagas"], databases=["default"])
    yield from (_from_check(each) for each in found)
    if not found:
        yield Finding(what="system checks of sagas, tables included", there=True)


def _from_check(found: CheckMessage) -> Finding:
    return Finding(what=f"{found.id}: {found.msg}", there=False, remedy=found.hint or "")
