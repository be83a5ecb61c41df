"""Settings of the processes of a chaos run: short leases, and where CHAOS_SKEW says so a clock that is wrong."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from tests import settings as base
from tests.settings import DEFAULT_AUTO_FIELD, SECRET_KEY, USE_TZ

__all__ = ["DEFAULT_AUTO_FIELD", "SECRET_KEY", "USE_TZ"]

LEASE = 3.0

SKEW = float(os.environ.get("CHAOS_SKEW", "0"))
if SKEW:
    _time, _time_ns = time.time, time.time_ns
    # No library that shifts the clock of a process is needed: what asks the host for the time here asks these.
    time.time = lambda: _time() + SKEW
    time.time_ns = lambda: _time_ns() + int(SKEW * 1e9)

# Connections that stay open are those that can be found dead; a server that is cut off is noticed in seconds.
OPTIONS = {"connect_timeout": 3, "tcp_user_timeout": 4000, "keepalives_idle": 2, "keepalives_interval": 1}
DATABASES = {
    alias: {**given, "CONN_MAX_AGE": None, "OPTIONS": OPTIONS} for alias, given in base.DATABASES.items()
}  # fmt: skip

INSTALLED_APPS = ["django.contrib.contenttypes", "sagas_django", "tests.chaos.app"]

SAGAS: dict[str, Any] = {
    "LEASE": LEASE, "HEARTBEAT": LEASE / 4, "POLL": 0.2, "PUBLISH_WINDOW": 1.5, "PUBLISH_TIMEOUT": 2.0, "TIMEOUT": 10,
    "HAND_BACK_AFTER": 0.5, "MESSAGE_TRIES": 10_000,
} | json.loads(os.environ.get("CHAOS_SAGAS", "{}"))  # fmt: skip

CELERY_BROKER_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:1/0")
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_timeout": 4, "socket_connect_timeout": 2, "visibility_timeout": 60}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"brief": {"format": "%(asctime)s %(levelname)s %(name)s %(threadName)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "brief"}},
    "loggers": {"sagas": {"handlers": ["console"], "level": "WARNING"}},
}
