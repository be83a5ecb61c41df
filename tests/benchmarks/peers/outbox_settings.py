"""Peer: Django settings for django-celery-outbox. `DATABASE_URL` and `REDIS_URL` say where."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

_database = urlsplit(os.environ["DATABASE_URL"])

SECRET_KEY = "benchmarks"  # guards nothing
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.contenttypes", "django_celery_outbox"]
CELERY_OUTBOX_APP = "outbox_relay.app"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": _database.hostname,
        "PORT": _database.port,
        "NAME": _database.path.lstrip("/"),
        "USER": unquote(_database.username or ""),
        "PASSWORD": unquote(_database.password or ""),
        "CONN_MAX_AGE": 600,
    }
}
