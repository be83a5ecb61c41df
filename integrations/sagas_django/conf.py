"""The `SAGAS` dict of the Django settings. Names are those of `sagas.settings.Settings`, in capitals."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from sagas.errors import ConfigurationError
from sagas.settings import Settings


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
    return Settings.of({name.lower(): value for name, value in given.items()}, where="SAGAS")


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "SAGAS":
        sagas_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="sagas_django.conf")
