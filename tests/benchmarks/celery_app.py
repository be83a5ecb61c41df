"""The Celery application of our side, as a Django project has it."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.benchmarks.settings")

app = Celery("tests.benchmarks")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
