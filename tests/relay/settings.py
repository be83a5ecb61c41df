"""Settings of the relay and worker processes: short times, changed by the test that starts a process."""

from __future__ import annotations

import json
import os
from typing import Any

from sagas.testing.faults import install_from_environment
from tests.relay import spans
from tests.settings import DATABASES, DEFAULT_AUTO_FIELD, SECRET_KEY, USE_TZ

__all__ = ["DATABASES", "DEFAULT_AUTO_FIELD", "SECRET_KEY", "USE_TZ"]

INSTALLED_APPS = ["django.contrib.contenttypes", "sagas_django", "tests.relay"]
DATABASES["default"]["CONN_MAX_AGE"] = 600  # a connection that was cut is met again

SAGAS: dict[str, Any] = json.loads(os.environ.get("RELAY_SAGAS", "{}"))

CELERY_BROKER_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:1/0")
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_timeout": 10, "socket_connect_timeout": 5}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
globals().update(json.loads(os.environ.get("RELAY_CELERY", "{}")))

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"brief": {"format": "%(asctime)s %(levelname)s %(name)s %(threadName)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "brief"}},
    "loggers": {"sagas": {"handlers": ["console"], "level": "INFO"}},
}

install_from_environment()
spans.install_from_environment()
