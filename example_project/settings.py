"""Settings of the example shop; where its neighbours are comes from the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict


def database(url: str) -> dict[str, Any]:
    """Django's settings of the database that a Postgres URL points to."""
    given = conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": given.pop("dbname", "shop"),
        "HOST": given.pop("host", ""),
        "PORT": given.pop("port", ""),
        "USER": given.pop("user", ""),
        "PASSWORD": given.pop("password", ""),
        "OPTIONS": given,
    }


SECRET_KEY = os.environ.get("SECRET_KEY", "an example keeps no secrets")
DEBUG = os.environ.get("DEBUG") == "1"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]

DATABASES = {"default": database(os.environ.get("DATABASE_URL", "postgresql://localhost/shop"))}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "sagas_django",
    "example_project.shop",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

ROOT_URLCONF = "example_project.urls"
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CELERY_BROKER_URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_timeout": 10, "socket_connect_timeout": 5}
CELERY_WORKER_PREFETCH_MULTIPLIER = 1  # messages do not wait behind a slow charge while another worker is free

SAGAS: dict[str, Any] = {
    "DEFINITIONS_FILE": Path(__file__).parent / "saga_definitions.json",  # in version control, beside the code
}

BANK_URL = os.environ.get("BANK_URL", "http://127.0.0.1:8001")
BANK_TIMEOUT = 10.0  # seconds; below the `timeout` of the steps that call the bank
CHARGE_SETTLE_AFTER = 60.0  # seconds after which a refund of an unknown charge is looked at once more
