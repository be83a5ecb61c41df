"""Settings of the relay and worker processes of these tests."""

from __future__ import annotations

import json
import os
from typing import Any

from sagas.testing.faults import install_from_environment
from tests.relay import settings as relay
from tests.settings import DATABASES, DEFAULT_AUTO_FIELD, SECRET_KEY, USE_TZ

__all__ = ["DATABASES", "DEFAULT_AUTO_FIELD", "SECRET_KEY", "USE_TZ"]

INSTALLED_APPS = ["django.contrib.contenttypes", "sagas_django", "tests.messages"]

SAGAS: dict[str, Any] = {
    "LEASE": 3.0, "HEARTBEAT": 1.0, "POLL": 0.2, "OUTBOX_TASKS": ["tests.messages.tasks.drop_*"],
    "PUBLISHERS": {"redis": "tests.messages.streams.publisher"},
} | json.loads(os.environ.get("MESSAGES_SAGAS", "{}"))  # fmt: skip

CELERY_BROKER_URL = relay.CELERY_BROKER_URL
CELERY_BROKER_TRANSPORT_OPTIONS = relay.CELERY_BROKER_TRANSPORT_OPTIONS
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_QUEUES = {"celery": {}, "apart": {}}
CELERY_TASK_CREATE_MISSING_QUEUES = False
CELERY_TASK_ROUTES = {"tests.messages.tasks.nowhere": {"queue": "no_such_queue"}}
LOGGING = relay.LOGGING

install_from_environment()
