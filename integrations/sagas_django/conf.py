"""The `SAGAS` dict of the Django settings: names of `sagas.settings.Settings` in capitals, and three more."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from sagas.errors import ConfigurationError
from sagas.releases import FILE
from sagas.settings import Settings, unknown
from sagas_outbox.encoding import briefly

DEFINITIONS_FILE = "DEFINITIONS_FILE"  # the names in SAGAS that are no numbers, and nothing that workers go by
OUTBOX_TASKS = "OUTBOX_TASKS"
PUBLISHERS = "PUBLISHERS"
APART = (DEFINITIONS_FILE, OUTBOX_TASKS, PUBLISHERS)


@lru_cache(maxsize=1)
def sagas_settings() -> Settings:
    """The settings in force.

    Raises:
        ConfigurationError: `SAGAS` is not a dict, has an unknown name, or a value that does not fit.
    """
    given = getattr(settings, "SAGAS", {})
    if not isinstance(given, dict):
        raise ConfigurationError(f"SAGAS must be a dict, not {type(given).__name__}")
    known = {*(field.name.upper() for field in fields(Settings)), *APART}
    for name in given:
        if isinstance(name, str) and not name.isupper() and name.upper() in known:
            raise ConfigurationError(f"SAGAS: setting names are written in capitals: {name.upper()!r}, not {name!r}")
        if name not in known:
            raise unknown(name.upper() if isinstance(name, str) else name, known, where="SAGAS")
    numbers = {name.lower(): value for name, value in given.items() if name not in APART}
    return Settings.of(numbers, where="SAGAS")


def definitions_file() -> Path | None:
    """Where released definitions are kept: `SAGAS["DEFINITIONS_FILE"]`, or in `BASE_DIR`; None: there is neither.

    Raises:
        ConfigurationError: it is no path.
    """
    given = getattr(settings, "SAGAS", None) or {}
    found = given.get(DEFINITIONS_FILE) if isinstance(given, dict) else None
    if found is None:
        base = getattr(settings, "BASE_DIR", None)
        return None if base is None else Path(base) / FILE
    if not isinstance(found, str | Path):
        raise ConfigurationError(f"SAGAS[{DEFINITIONS_FILE!r}]={briefly(found)}: a path")
    return Path(found)


def outbox_tasks() -> list[str]:
    """Names and patterns of the Celery tasks whose calls are published: `SAGAS["OUTBOX_TASKS"]`.

    Raises:
        ConfigurationError: it is no list of names.
    """
    found = _apart(OUTBOX_TASKS, list | tuple, "a list of task names")
    return list(found or ())


def publishers() -> dict[str, Any]:
    """Publishers of messages by scheme: `SAGAS["PUBLISHERS"]`, each an object or where it is.

    Raises:
        ConfigurationError: it is no dict.
    """
    return dict(_apart(PUBLISHERS, dict, "a dict of scheme and publisher") or {})


def _apart(name: str, kind: Any, words: str) -> Any:
    given = getattr(settings, "SAGAS", None) or {}
    found = given.get(name) if isinstance(given, dict) else None
    if found is not None and not isinstance(found, kind):
        raise ConfigurationError(f"SAGAS[{name!r}]={briefly(found)}: {words}")
    return found


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "SAGAS":
        sagas_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="sagas_django.conf")
