"""Settings of the relays and workers that deploys replace: old code or new, as DEPLOYS_CODE says."""

from __future__ import annotations

from tests.relay import settings as base
from tests.relay.settings import (
    CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP,
    CELERY_BROKER_TRANSPORT_OPTIONS,
    CELERY_BROKER_URL,
    DATABASES,
    DEFAULT_AUTO_FIELD,
    LOGGING,
    SAGAS,
    SECRET_KEY,
    USE_TZ,
)

__all__ = [
    "CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP", "CELERY_BROKER_TRANSPORT_OPTIONS", "CELERY_BROKER_URL", "DATABASES",
    "DEFAULT_AUTO_FIELD", "LOGGING", "SAGAS", "SECRET_KEY", "USE_TZ",
]  # fmt: skip

INSTALLED_APPS = [*[each for each in base.INSTALLED_APPS if each != "tests.relay"], "tests.deploys.app"]
