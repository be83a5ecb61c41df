"""The Celery application, as a Django project has it."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.messages.settings")

app = Celery("tests.messages")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
