"""Settings of the processes that the kill tests start: short leases, and a fault where SAGAS_FAULT says so."""

from __future__ import annotations

import os
from typing import Any

from sagas.testing.faults import install_from_environment
from tests import settings as base
from tests.settings import DEFAULT_AUTO_FIELD, SECRET_KEY, USE_TZ

__all__ = ["DEFAULT_AUTO_FIELD", "SECRET_KEY", "USE_TZ"]

# Connections that stay open are those that can be found dead.
DATABASES = {alias: {**given, "CONN_MAX_AGE": None} for alias, given in base.DATABASES.items()}

INSTALLED_APPS = ["django.contrib.contenttypes", "sagas_django", "tests.faults.app"]

LEASE = float(os.environ.get("FAULTS_LEASE", "2.4"))

SAGAS: dict[str, Any] = {
    "LEASE": LEASE,
    "HEARTBEAT": LEASE / 6,
    "POLL": 0.2,
    "PUBLISH_WINDOW": float(os.environ.get("FAULTS_PUBLISH_WINDOW", LEASE)),
    "HAND_BACK_AFTER": float(os.environ.get("FAULTS_HAND_BACK_AFTER", "1")),
}

CELERY_BROKER_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:1/0")
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_timeout": 10,
    "socket_connect_timeout": 5,
    "global_keyprefix": os.environ.get("FAULTS_PREFIX", ""),  # many scenes share a Redis
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"brief": {"format": "%(asctime)s %(levelname)s %(name)s %(threadName)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "brief"}},
    "loggers": {"sagas": {"handlers": ["console"], "level": "INFO"}},
}

install_from_environment()
