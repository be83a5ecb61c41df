"""Django settings of our side of the benchmarks. `DATABASE_URL` and `REDIS_URL` say where."""

from __future__ import annotations

import json
import os
from urllib.parse import unquote, urlsplit

_database = urlsplit(os.environ["DATABASE_URL"])

SECRET_KEY = "benchmarks"  # guards nothing
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "sagas_django",
    "tests.benchmarks",
]
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
CELERY_BROKER_URL = os.environ.get("REDIS_URL", "")
# all at their defaults, as the peers are, but for what a comparison is about
SAGAS: dict[str, object] = json.loads(os.environ.get("BENCH_SAGAS", "{}"))
