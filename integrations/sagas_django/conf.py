"""The `SAGAS` dict of the Django settings. Names are those of `sagas.settings.Settings`, in capitals, and one more."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from sagas.errors import ConfigurationError
from sagas.releases import FILE
from sagas.settings import Settings

DEFINITIONS_FILE = "DEFINITIONS_FILE"  # the one name in SAGAS that is no number, and nothing that workers go by


@lru_cache(maxsize=1)
def sagas_settings() -> Settings:
    """The settings in force.

    Raises:
        ConfigurationError: `SAGAS` is not a dict, has an unknown name, or a value that does not fit.
    """
    given = getattr(settings, "SAGAS", {})
    if not isinstance(given, dict):
        raise ConfigurationError(f"SAGAS must be a dict, not {type(given).__name__}")
    for name in given:
        if not (isinstance(name, str) and name.isupper()):
            raise ConfigurationError(f"SAGAS: setting names are written in capitals, not {name!r}")
    numbers = {name.lower(): value for name, value in given.items() if name != DEFINITIONS_FILE}
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
        raise ConfigurationError(f"SAGAS[{DEFINITIONS_FILE!r}]={found!r}: a path")
    return Path(found)


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "SAGAS":
        sagas_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="sagas_django.conf")
